//! Steps 1 and 2 of 7: what a client defines. Workflows, their edits, and the write half of the outbox.
//!
//! An edit changes the row of a workflow, its audit entry, its schedule version and its outbox row in one transaction
//! ([`create_workflow`], [`save_workflow`], [`erase_workflow`]). The outbox row says "check this workflow"; the publisher
//! reads it.
//!
//! | step | file |
//! |---|---|
//! | 1 edit | `workflow/edit.rs`, `definition/`, `audit.rs` |
//! | 2 outbox | `outbox.rs`, `notify.rs` |
//! | 4 schedule | `drift.rs`: what the publisher's sweeps found |
//! | 5 dead letters | `dead_letters.rs`: what the publisher mirrored |
//! | 4, 5, 7 | `aws_errors.rs`: what a team reads of the errors of AWS |
//!
//! This crate imports `schedule` and `db`, and no other crate of ours. It must not depend on axum, on an HTTP client or
//! on an AWS client, so no call leaves the process inside the transaction of an edit.

pub mod audit;
pub mod aws_errors;
pub mod database_time;
pub mod dead_letters;
pub mod definition;
pub mod drift;
pub mod events;
pub mod failpoint;
pub mod id;
pub mod keyset;
pub mod notify;
pub mod outbox;
pub mod reasons;
pub mod secrets;
pub mod signing;
mod sync;
pub mod trigger;
mod workflow;
pub mod zones;

pub use sync::{Sync, SyncStatus};
pub use workflow::sorted;
pub use workflow::{
    CLOCK_SKEW, Filter, LastResult, ListedWorkflow, PausedBy, Saved, State, Workflow, cancel_live_runs,
    count_uncounted_workflows, create_workflow, erase_workflow, export_workflows, find_locked_for_fire, find_team,
    find_workflow, is_visible, list_workflows, lock_for_edit, lock_row, lock_workflow, names_of_workflows,
    save_workflow, try_lock_workflow,
};
