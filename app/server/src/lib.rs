//! The app of cronbox: the source of truth. Edits go to the outbox, fires become runs.
//!
//! | step | file |
//! |---|---|
//! | 1 edit | `api/workflows.rs`, `api/schedules.rs`, `api/verbs.rs` -> `workflows/edit.rs`, `schedules.rs`, `schedules_file.rs`, `body.rs`, `spec.rs`, `patch.rs`, `audit.rs` |
//! | 2 outbox | `outbox.rs`, `notify.rs` |
//! | 4 schedule | `drift.rs`: what the publisher's sweeps found |
//! | 7 run | `api/invoke.rs` -> `invoke.rs`, `versions.rs`, `occurrences.rs`, `due_times.rs`, `manual.rs`, `backfills.rs`, `verify.rs`; `execute.rs` -> `claim.rs`, `runs.rs`, `actions/` |
//!
//! Steps 3 to 6 are the publisher's, EventBridge's and the runner's. This crate depends on no AWS client, so no AWS
//! call can happen inside an edit's transaction.

pub mod acceptance;
pub mod action;
pub mod actions;
pub mod api;
pub mod audit;
pub mod backfills;
pub mod body;
pub mod cadence;
pub mod catch_up;
pub mod claim;
pub mod clock;
pub mod config;
pub mod database_time;
pub mod drift;
pub mod due_times;
pub mod execute;
mod failures;
pub mod field;
pub mod gate;
pub mod hand_over;
pub mod id;
pub mod identity;
#[cfg(debug_assertions)]
pub mod inject;
#[cfg(not(debug_assertions))]
mod inject;
pub mod invoke;
mod job_failures;
pub mod jobs;
pub mod keys;
pub mod ledger_cursor;
mod load;
pub mod manual;
pub mod metrics;
mod next_try;
pub mod notify;
pub mod occurrences;
pub mod outbox;
pub mod overlap;
pub mod patch;
pub mod policies;
mod promote;
pub mod prune;
pub mod prune_marks;
pub mod queue;
pub mod reasons;
pub mod recover;
mod run;
pub mod runs;
pub mod schedules;
pub mod schedules_file;
mod server;
mod shutdown;
pub mod signing;
pub mod spec;
pub mod spread;
mod state;
pub mod stats;
pub mod teams;
pub mod timeouts;
pub mod trigger;
pub mod verify;
pub mod versions;
pub mod watchdog;
pub mod workflows;
pub mod zones;

pub use config::Config;
pub use run::serve;
pub use server::listen;
pub use shutdown::Shutdown;
pub use state::{App, Parts, Requests};
