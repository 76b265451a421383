//! The app from an edit to the run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod database;
mod invoke;
mod journey;
mod migrations;
mod nudge;
mod runs;
mod server;
mod start;
// It shifts the app's clock, which only debug builds allow.
#[cfg(debug_assertions)]
mod zone_history;
mod zones;
