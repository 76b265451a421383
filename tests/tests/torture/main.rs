//! The torture: seeded histories of edits, publishers, faults, kills and clock steps, on a real Postgres
//! with the real publisher, against an oracle that knows nothing of either.
//!
//! `make torture N=5000 SEED=1` runs any number; `make torture N=1 SEED=7` replays one, with its trace.
//! Without arguments (so under `make test`): the seeds that once failed, 200 histories of publishing, 100 of the ledger,
//! and the ablations, each of which must fail. With `--full` (so under `make nightly`): ten times as many, from `--seed` on.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

// No release has injection points.
#[cfg(not(debug_assertions))]
fn main() {
    println!("0 histories: a release has no injection points, run it without --release");
}

#[cfg(debug_assertions)]
mod ablations;
#[cfg(debug_assertions)]
mod actor;
#[cfg(debug_assertions)]
mod canary;
#[cfg(debug_assertions)]
mod coverage;
#[cfg(debug_assertions)]
mod dice;
#[cfg(debug_assertions)]
mod editor;
#[cfg(debug_assertions)]
mod ground;
#[cfg(debug_assertions)]
mod history;
#[cfg(debug_assertions)]
mod invariants;
#[cfg(debug_assertions)]
mod lag;
#[cfg(debug_assertions)]
mod ledger;
#[cfg(debug_assertions)]
mod oracle;
#[cfg(debug_assertions)]
mod run;
#[cfg(debug_assertions)]
mod tap;
#[cfg(debug_assertions)]
mod torture;
#[cfg(debug_assertions)]
mod turnstile;
#[cfg(debug_assertions)]
mod wire;

#[cfg(debug_assertions)]
fn main() -> std::process::ExitCode {
    run::run(&std::env::args().collect::<Vec<_>>())
}
