#!/bin/sh
# Makes the venv $1 hold the Python tools that $2 lists, and nothing else.
set -eu
mkdir -p "$1"
venv=$(cd "$1" && pwd)
requirements=$2

# Each program in a venv names the folder that it was made in: one that was moved or copied is made again.
made_of() {
    echo "in $venv:"
    cat "$requirements"
}

if [ "$(made_of)" != "$(cat "$venv/made-of.txt" 2>/dev/null)" ]; then
    python3 -c 'import ensurepip, venv' 2>/dev/null || {
        command -v apt-get >/dev/null && sh "$(dirname "$0")/debian.sh" python3-venv
    }
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install -q -r "$requirements"
    # Last: a venv that was cut off in the making is made again.
    made_of >"$venv/made-of.txt"
fi
