#!/bin/sh
# Installs what the receivers of examples/ need into the target folder $1: a venv, and, if npm is installed, the compiled
# TypeScript. The sources are copied, so that nothing is written into the repository.
set -eu
mkdir -p "$1"
target=$(cd "$1" && pwd)
here=$(dirname "$0")
sources="$here/../examples/receivers/typescript"
copy="$target/examples/typescript"

sh "$here/venv.sh" "$target/venv-examples" "$here/../examples/receivers/python/requirements.txt"

# The test of the TypeScript receiver says that it was skipped.
command -v npm >/dev/null || exit 0

made_of() {
    cat "$sources/receiver.ts" "$sources/package.json" "$sources/package-lock.json" "$sources/tsconfig.json"
}

if [ "$(made_of)" != "$(cat "$copy/made-of.txt" 2>/dev/null)" ]; then
    rm -rf "$copy"
    mkdir -p "$copy"
    cp "$sources/receiver.ts" "$sources/package.json" "$sources/package-lock.json" "$sources/tsconfig.json" "$copy"
    (cd "$copy" && npm ci --loglevel=error --ignore-scripts --no-audit --no-fund >/dev/null && npm run --silent build)
    # Last: a copy that was interrupted is made again.
    made_of >"$copy/made-of.txt"
fi
