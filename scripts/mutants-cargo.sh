#!/bin/sh
# The cargo that cargo-mutants calls: before the tests it also builds the programs that they start.
set -eu
unset CARGO
case " $* " in *" --no-run "*) cargo build --workspace --bins ;; esac
exec cargo "$@"
