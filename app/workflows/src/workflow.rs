//! Step 1 of 7: workflows and their edits.
//!
//! Every change goes through [`create_workflow`], [`save_workflow`] or [`erase_workflow`]: the row, its audit entry
//! and, when the timing or the state changes, its schedule version and its outbox row, in one transaction.

mod edit;
mod list;
mod live_runs;
mod read;
mod record;
pub mod sorted;
mod usage;
mod write;

pub use edit::{create_workflow, erase_workflow, save_workflow};
pub use list::{Filter, ListedWorkflow, list_workflows};
pub use live_runs::cancel_live_runs;
pub use read::{
    CLOCK_SKEW, export_workflows, find_locked_for_fire, find_team, find_workflow, is_visible, lock_for_edit, lock_row,
    lock_workflow, names_of_workflows, try_lock_workflow,
};
pub use record::{LastResult, PausedBy, Saved, State, Workflow};
pub use usage::count_uncounted_workflows;
