//! Chaos: real processes are killed, disconnected and refused. Afterwards EventBridge equals the database, and each due
//! time has run once.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod database;
mod field;
mod invokes;
// Only debug builds have fault points.
#[cfg(debug_assertions)]
mod kills;
mod oracle;
mod restored;
mod scheduler;
