#!/bin/sh
# Runs each fuzz target with libFuzzer. $1: the target folder; $2: seconds for each. What libFuzzer finds, a corpus and texts
# that crash, is kept in $1/fuzz. Exits with 3 if this machine cannot run it.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "$1/fuzz"
target=$(cd "$1" && pwd)
seconds=$2
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "fuzz: NOT RUN, because there is no nightly compiler: rustup toolchain install nightly" >&2
    exit 3
fi
if [ ! -x "$target/tools/bin/cargo-fuzz" ]; then
    cargo install --quiet --locked --root "$target/tools" cargo-fuzz || {
        echo "fuzz: NOT RUN, because cargo-fuzz cannot be installed" >&2
        exit 3
    }
fi
export PATH="$target/tools/bin:$PATH" CARGO_TARGET_DIR="$target/fuzz/build" SQLX_OFFLINE=true

failures=0
# $1: the folder of the targets; $2: the folder of their first texts; then the targets.
fuzz() {
    folder=$1
    seeds=$2
    shift 2
    for name in "$@"; do
        corpus=$target/fuzz/corpus/$name
        log=$target/fuzz/$name.log
        mkdir -p "$corpus" "$target/fuzz/crashes"
        if cargo +nightly fuzz run --fuzz-dir "$folder" -s none "$name" "$corpus" "$seeds/$name" -- \
            -max_total_time="$seconds" -max_len=3000 -timeout=10 -print_final_stats=1 \
            -artifact_prefix="$target/fuzz/crashes/$name-" >"$log" 2>&1; then
            echo "fuzz: $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") texts in $seconds s, no crash"
        else
            echo "fuzz: $name FAILED: $log" >&2
            failures=$((failures + 1))
        fi
    done
}

fuzz fuzz "$PWD/fuzz/seeds" cursor key url reference action
fuzz schedule/fuzz "$PWD/schedule/fuzz/corpus" cron timezone time
[ "$failures" = 0 ]
