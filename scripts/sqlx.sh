#!/bin/sh
# Compares .sqlx with the statements in the code and the schema that the migrations create. `write` regenerates it,
# `check` fails if it is stale. Needs Postgres' programs, but no sqlx-cli.
set -eu
cd "$(dirname "$0")/.."
bin=$(sh scripts/postgres-bin.sh)
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
target=$(cd "$target" && pwd)
data=$(mktemp -d)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')

# Postgres refuses to run as root.
unprivileged() {
    if [ "$(id -u)" != 0 ]; then "$@"; else setpriv --reuid "$owner" --regid "$owner" --clear-groups "$@"; fi
}
owner=$(id -u)
if [ "$owner" = 0 ]; then
    owner=$(id -u postgres 2>/dev/null || id -u nobody)
    chown "$owner" "$data"
fi
stop() {
    unprivileged "$bin/pg_ctl" -D "$data/db" -m immediate stop >/dev/null 2>&1 || true
    rm -rf "$data"
}
trap stop EXIT INT TERM

(cd / && unprivileged "$bin/initdb" -D "$data/db" -U cronbox -A trust -E UTF8 --no-sync >/dev/null)
(cd / && unprivileged "$bin/pg_ctl" -D "$data/db" -w -t 300 -l "$data/log" \
    -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off" start >/dev/null)
for migration in migrations/*.sql; do
    # As sqlx does, in one transaction, unless its first line refuses that.
    single=--single-transaction
    if head -n 1 "$migration" | grep -q '^-- no-transaction'; then single=; fi
    "$bin/psql" $single -q -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$port" -U cronbox -d postgres -f "$migration"
done

rm -rf "$target/sqlx"
mkdir -p "$target/sqlx"
# The macros run when a crate is compiled, and cargo does not know that the database is an input, too.
touch app/*/src/lib.rs db/src/lib.rs lambdas/publisher/src/lib.rs
SQLX_OFFLINE=false SQLX_OFFLINE_DIR="$target/sqlx" \
    DATABASE_URL="postgres://cronbox@127.0.0.1:$port/postgres" cargo check -q --workspace
touch app/*/src/lib.rs db/src/lib.rs lambdas/publisher/src/lib.rs

case ${1:-} in
write)
    rm -rf .sqlx
    cp -r "$target/sqlx" .sqlx
    ;;
check)
    if ! diff -r .sqlx "$target/sqlx" >/dev/null; then
        diff -rq .sqlx "$target/sqlx" || true
        echo "sqlx: .sqlx is stale; run \`make sqlx\` and commit it" >&2
        exit 1
    fi
    ;;
*)
    echo "usage: $0 write|check" >&2
    exit 1
    ;;
esac
