#!/bin/sh
# Installs what is missing: Postgres' server programs, and Python tools in the venv $1.
set -eu
venv=$1
here=$(dirname "$0")

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

debian() {
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

if [ -z "$(sh "$here/postgres-bin.sh")" ]; then
    if command -v apt-get >/dev/null; then
        debian postgresql
    elif command -v brew >/dev/null; then
        brew install postgresql@16
    else
        echo "setup: install PostgreSQL 15 or later with its server programs (initdb, postgres), then run this again" >&2
        exit 1
    fi
fi

if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt"; then
    python3 -c 'import ensurepip, venv' 2>/dev/null || { command -v apt-get >/dev/null && debian python3-venv; }
    mkdir -p "$(dirname "$venv")"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install -q -r "$here/requirements.txt"
    # Last: a venv that was cut off in the making is made again.
    cp "$here/requirements.txt" "$venv/requirements.txt"
fi
