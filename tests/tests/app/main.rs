//! The app's stories: from the edit to the run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod database;
mod invoke;
mod journey;
mod nudge;
mod runs;
mod start;
