#!/bin/sh
# Writes beside each list of Python tools (X.in) its pins (X.txt): every package that it needs, with version and digests.
# pip installs nothing else, because scripts/venv.sh demands the digests. Target folder $1.
set -eu
mkdir -p "$1"
target=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
sh scripts/venv.sh "$target/venv-pins" scripts/pins.txt

for list in scripts/*.in tests/benches/peers/requirements.in examples/receivers/python/requirements.in; do
    # Wheels only, because pip would build anything else with tools without digests. This package has no wheel.
    wheels="--only-binary :all:"
    if [ "$list" = scripts/actionlint.in ]; then wheels=; fi
    out=${list%.in}.txt
    {
        echo "# The pins of $(basename "$list"), which \`make pins\` writes."
        if [ -n "$wheels" ]; then echo "$wheels"; fi
        "$target/venv-pins/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate "$list"
    } >"$target/pins.txt"
    mv "$target/pins.txt" "$out"
done
