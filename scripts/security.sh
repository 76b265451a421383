#!/bin/sh
# Runs the attacks of tests/security on the built app. $1: ci or full; further arguments are the program's.
#
# On Linux as root they run in a network namespace of their own, in which every address is this machine's: nothing can leave
# the machine, and the listeners of the attacks see a request to any address. /etc/resolv.conf names a server that only the attacks
# start. Elsewhere they run in the machine's network, and say which attacks are skipped.
set -eu
cd "$(dirname "$0")/.."
size=$1
shift
# The namespace reaches no registry, so everything is built before.
cargo test --workspace --test security --no-run
resolv=$(mktemp)
trap 'rm -f "$resolv"' EXIT INT TERM
echo "nameserver 127.0.0.77" >"$resolv"
# shellcheck disable=SC2016 # the inner shell expands it
in_namespace='
set -eu
ip link set lo up
ip route add local default dev lo
ip -6 route add local default dev lo 2>/dev/null || true
mount --bind "$0" /etc/resolv.conf
exec "$@"'
# Not every container permits all of it.
if unshare --net --mount sh -c "$in_namespace" "$resolv" true; then
    unshare --net --mount sh -c "$in_namespace" "$resolv" \
        cargo test --offline --workspace --test security -- --isolated --size "$size" "$@"
else
    echo "security: no network namespace (Linux, root, unshare and ip are needed): some attacks are SKIPPED" >&2
    cargo test --workspace --test security -- --size "$size" "$@"
fi
