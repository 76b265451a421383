#!/bin/sh
# Makes the venv $1 hold the Python tools that $2 lists, and nothing else.
set -eu
venv=$1
requirements=$2

if ! cmp -s "$requirements" "$venv/requirements.txt"; then
    python3 -c 'import ensurepip, venv' 2>/dev/null || {
        command -v apt-get >/dev/null && sh "$(dirname "$0")/debian.sh" python3-venv
    }
    rm -rf "$venv"
    mkdir -p "$(dirname "$venv")"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install -q -r "$requirements"
    # Last: a venv that was cut off in the making is made again.
    cp "$requirements" "$venv/requirements.txt"
fi
