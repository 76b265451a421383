#!/bin/sh
# Runs the command $1 with the processor time that the command $2 leaves, and ends when both have ended; fails if one failed.
# What $1 printed follows at the end.
set -eu
log=$(mktemp)
idle="nice -n 19"
if chrt --idle 0 true 2>/dev/null; then
    idle="chrt --idle 0"
fi
$idle sh -c "$1" >"$log" 2>&1 &
beside=$!
trap 'kill "$beside" 2>/dev/null || true; rm -f "$log"' EXIT
failed=0
sh -c "$2" || failed=$?
wait "$beside" || failed=$?
cat "$log"
exit "$failed"
