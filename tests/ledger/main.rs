//! The ledger: one decision for each due time, and one end for each accepted run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backfill_progress;
mod backfill_timing;
mod backfilling;
mod by_hand;
mod clocks;
mod constraints;
mod examples;
mod executing;
mod failing;
mod from_a_file;
mod groups;
mod handing_over;
mod heartbeats;
mod inside;
mod jobs;
mod killed;
mod late;
mod leases;
mod outages;
mod overlap;
mod plans;
mod process;
mod proof_pages;
mod proving;
mod pruning;
mod races;
mod receiver;
mod recovering;
mod rush;
mod sharing;
mod signatures;
mod standstill;
mod statistics;
mod stopping;
mod trying;
mod verifying;
mod waiting;
mod watchdog;
mod words;
