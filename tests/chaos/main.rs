//! Chaos: real processes are killed, disconnected and refused. Afterwards EventBridge equals the database, and each due
//! time has run once.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod database_outages;
mod invoke;
mod oracle;
mod pooler;
// Only debug builds have fault points.
#[cfg(debug_assertions)]
mod publisher_kills;
mod restore;
mod scheduler_outages;
mod setup;
