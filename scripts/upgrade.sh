#!/bin/sh
# Builds what the rehearsal of an upgrade begins with, in the folder `upgrade` of the target folder $1: the app, the zips and terraform/
# of an older commit $2.
set -eu
mkdir -p "$1/upgrade"
upgrade=$(cd "$1/upgrade" && pwd)
commit=$2
cd "$(dirname "$0")/.."
git cat-file -e "$commit^{commit}" 2>/dev/null || {
    echo "upgrade: this clone does not have the commit $commit: git fetch --unshallow" >&2
    exit 1
}
[ "$(cat "$upgrade/commit" 2>/dev/null)" != "$commit" ] || exit 0
rm -rf "$upgrade/source"
mkdir -p "$upgrade/source"
git archive "$commit" | tar -x -C "$upgrade/source"
cd "$upgrade/source"
CARGO_TARGET_DIR="$upgrade/target" cargo build --locked --bin cronbox-app
CRONBOX_RDS_CA='' sh scripts/lambdas.sh "$upgrade/target" x86_64
# The next run builds nothing.
echo "$commit" >"$upgrade/commit"
