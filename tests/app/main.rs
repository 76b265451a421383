//! The app from an edit to the run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod edits;
mod end_to_end;
mod failover;
mod invoke;
mod isolation;
mod keys;
mod logs;
mod metrics;
mod migrations;
mod notifications;
mod old_names;
mod password_rotation;
mod pool;
mod pooler;
mod refusals;
mod roles;
mod runs;
mod startup;
mod traces;
// It shifts the app's clock, which only debug builds allow.
#[cfg(debug_assertions)]
mod zone_history;
mod zones;
