//! The app's stories: from the edit to the run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod database;
mod invoke;
mod journey;
mod migrations;
mod nudge;
mod runs;
mod server;
mod start;
// It moves the clock of an app, which no release lets it do.
#[cfg(debug_assertions)]
mod zone_history;
mod zones;
