//! Chaos: real publisher processes, killed, cut off and refused; after it EventBridge equals the database.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod database;
mod field;
// No release has points at which it dies.
#[cfg(debug_assertions)]
mod kills;
mod oracle;
mod scheduler;
