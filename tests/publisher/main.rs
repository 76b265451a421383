//! The publisher: what EventBridge has after edits, crashes and every kind of answer.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod blocking;
mod connections;
mod converging;
// Only debug builds have fault points.
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
