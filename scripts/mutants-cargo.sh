#!/bin/sh
# cargo, as cargo-mutants calls it: before the tests it builds the programs that they start.
set -eu
unset CARGO
case " $* " in *" --no-run "*) cargo build --workspace --bins ;; esac
exec cargo "$@"
