//! Chaos: real processes, killed, cut off and refused; after it EventBridge equals the database, and each time
//! that was owed has run once.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod database;
mod field;
mod invokes;
// No release has points at which it dies.
#[cfg(debug_assertions)]
mod kills;
mod oracle;
mod restored;
mod scheduler;
