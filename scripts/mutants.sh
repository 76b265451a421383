#!/bin/sh
# Changes the code in small ways, one change at a time; each change must fail a test. The survivors are listed in
# $1/mutants/*/mutants.out/missed.txt. $1: the target folder; $2: which part of the changes, for example 0/7 (default:
# all).
set -eu
target=$1
shard=${2:+--shard=$2}
# In place, so that each change rebuilds little. `git checkout .` undoes a change that an interrupted run has left.
git diff --quiet HEAD || { echo "mutants: commit your changes first, because it changes the files in place" >&2; exit 1; }
cargo install --quiet --locked --root "$target/tools" cargo-mutants

# A change can make a loop endless; it must not use up all memory.
ulimit -v 16000000 2>/dev/null || true

survivors=0
cargo=cargo
mutants() {
    name=$1
    shift
    mkdir -p "$target/mutants/$name"
    status=0
    CARGO=$cargo "$target/tools/bin/cargo-mutants" mutants --in-place $shard -o "$target/mutants/$name" "$@" || status=$?
    case $status in
        0) ;;
        2 | 3) survivors=1 ;;
        *) exit "$status" ;;
    esac
}

# The dialect, by its own tests. The skipped test takes as long as all others together.
mutants schedule -p schedule -- -- --skip every_zone_agrees_with_the_scan

# The code that decides fires, claims and settles, by the tests of the ledger and the publisher. These tests also start
# our programs, so mutants-cargo.sh builds the programs with each change. The tests must pass without a change.
export CARGO="$PWD/scripts/mutants-cargo.sh"
cargo build --workspace --bins
cargo test --workspace --test ledger --test app --test publisher
mutants ledger --baseline=skip --timeout 900 --test-workspace=true \
    -C=--test=ledger -C=--test=app \
    -f 'app/ledger/src/invoke/*.rs' -f app/ledger/src/due_times.rs -f 'app/ledger/src/versions/*.rs' \
    -f app/ledger/src/catch_up.rs -f app/executor/src/claim.rs -f app/executor/src/hand_over.rs
mutants publisher --baseline=skip --timeout 900 --test-workspace=true \
    -C=--test=publisher \
    -f lambdas/publisher/src/claim.rs -f 'lambdas/publisher/src/settle*.rs' -f 'lambdas/publisher/src/settle/*.rs'
cat "$target"/mutants/*/mutants.out/missed.txt
exit "$survivors"
