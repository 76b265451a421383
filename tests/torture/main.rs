//! The torture: seeded histories of edits, publishers, faults, kills and clock steps, with the real publisher on a real
//! Postgres, checked by an independent oracle.
//!
//! `make torture N=5000 SEED=1` runs any number; `make torture N=1 SEED=7` replays one and prints its trace. Without
//! arguments (in `make test`): the seeds that once failed, 300 histories of publishing, 200 of the ledger, and the
//! ablations, each of which must fail. With `--full` (in `make nightly`): many more, starting at `--seed`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

// Only debug builds have injection points.
#[cfg(not(debug_assertions))]
fn main() {
    println!("0 histories: a release has no injection points, run it without --release");
}

#[cfg(debug_assertions)]
mod actor;
#[cfg(debug_assertions)]
mod command_line;
#[cfg(debug_assertions)]
mod coverage;
#[cfg(debug_assertions)]
mod database;
#[cfg(debug_assertions)]
mod histories;
#[cfg(debug_assertions)]
mod leaked_secrets;
#[cfg(debug_assertions)]
mod ledger;
#[cfg(debug_assertions)]
mod publishing;
#[cfg(debug_assertions)]
mod random;
#[cfg(debug_assertions)]
mod tap;
#[cfg(debug_assertions)]
mod turnstile;

#[cfg(debug_assertions)]
fn main() -> std::process::ExitCode {
    command_line::run(&std::env::args().collect::<Vec<_>>())
}
