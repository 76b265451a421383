//! The ledger's stories: one decision for every time owed, and every accepted run to its one end.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backfilling;
mod by_hand;
mod from_a_file;
mod jobs;
mod late;
mod overlap;
mod races;
mod statistics;
mod verifying;
mod watchdog;
mod words;
