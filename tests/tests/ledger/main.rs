//! The ledger's stories: one decision for every time owed, and every accepted run to its one end.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backfilling;
mod by_hand;
mod executing;
mod from_a_file;
mod groups;
mod inside;
mod jobs;
mod killed;
mod late;
mod outages;
mod overlap;
mod process;
mod pruning;
mod races;
mod receiver;
mod recovering;
mod rush;
mod signatures;
mod statistics;
mod trying;
mod verifying;
mod watchdog;
mod words;
