#!/bin/sh
# Refuses a dependency that no source of its crate names. Target folder $1.
set -eu
mkdir -p "$1"
target=$(cd "$1" && pwd)
version=0.9.2

# It exists on crates.io only. A debug build is ready sooner, and is fast enough for this workspace.
if [ "$(env -u CARGO "$target/tools/bin/cargo-machete" --version 2>/dev/null || true)" != "$version" ]; then
    cargo install --quiet --debug --locked --root "$target/tools" --version "$version" cargo-machete
fi
# It takes a variable CARGO as the sign that cargo has started it.
env -u CARGO "$target/tools/bin/cargo-machete" --skip-target-dir
