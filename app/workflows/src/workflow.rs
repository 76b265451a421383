//! Step 1 of 7: workflows and their edits.
//!
//! Every change goes through [`create`], [`save`] or [`erase`]: the row, its audit entry and, when
//! the timing or the state changes, its schedule version and its outbox row, in one transaction.

mod edit;
mod live_runs;
mod read;
mod record;
mod write;

pub use edit::{create, erase, save};
pub use live_runs::cancel_live_runs;
pub use read::{CLOCK_SKEW, find, find_locked_for_fire, list, lock, lock_row, try_lock};
pub use record::{Filter, Saved, State, Sync, SyncStatus, Workflow};
