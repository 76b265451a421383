#!/bin/sh
# Installs into the venv $1 exactly the Python tools that $2 lists. Each must have a version and the digests of its files.
set -eu
mkdir -p "$1"
venv=$(cd "$1" && pwd)
requirements=$2

# The programs in a venv contain the path of its folder, so a venv that was moved or copied is rebuilt.
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
    "$venv/bin/python" -m pip install -q --require-hashes -r "$requirements"
    # Written last, so that the next call rebuilds a venv whose installation was interrupted.
    made_of >"$venv/made-of.txt"
fi
