//! Stories of the publisher: what EventBridge shows, whoever edits, dies or answers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod blocking;
mod connections;
mod converging;
// No release has points at which it dies.
#[cfg(debug_assertions)]
mod crashes;
mod database;
mod denials;
mod edits;
mod faults;
mod figures;
mod front;
mod interleavings;
mod lambda;
mod levels;
mod listening;
mod mistakes;
mod moto;
mod operated;
mod outage;
mod poll;
mod process;
mod rotation;
mod secured;
mod sharing;
mod signals;
mod silence;
mod storm;
mod sweep;
mod tls;
mod unanswered;
mod world;
mod zones;
