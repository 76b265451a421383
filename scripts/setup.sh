#!/bin/sh
# Installs what is missing: Postgres' server programs, pgbouncer, promtool, Python tools in the venv $1, and beside it what the examples need.
set -eu
venv=$1
here=$(dirname "$0")

if [ -z "$(sh "$here/postgres-bin.sh")" ]; then
    if command -v apt-get >/dev/null; then
        sh "$here/debian.sh" postgresql
    elif command -v brew >/dev/null; then
        brew install postgresql@16
    else
        echo "setup: install PostgreSQL 15 or later with its server programs (initdb, postgres), then run this again" >&2
        exit 1
    fi
fi
if ! command -v pgbouncer >/dev/null && [ ! -x /usr/sbin/pgbouncer ]; then
    if command -v apt-get >/dev/null; then
        sh "$here/debian.sh" pgbouncer
    elif command -v brew >/dev/null; then
        brew install pgbouncer
    else
        echo "setup: install pgbouncer 1.18 or later, then run this again" >&2
        exit 1
    fi
fi
if ! command -v promtool >/dev/null; then
    if command -v apt-get >/dev/null; then
        sh "$here/debian.sh" prometheus
    elif command -v brew >/dev/null; then
        brew install prometheus
    else
        echo "setup: install promtool, which comes with Prometheus 2.30 or later, then run this again" >&2
        exit 1
    fi
fi
sh "$here/venv.sh" "$venv" "$here/requirements.txt"
sh "$here/examples.sh" "$(dirname "$venv")"
