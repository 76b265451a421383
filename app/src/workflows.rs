//! Step 1 of 7: workflows and their edits.
//!
//! Every change goes through [`create`], [`save`] or [`erase`]: the row, its audit entry and, when
//! the timing or the state changes, its schedule version and its outbox row, in one transaction.

mod edit;
mod hold;
mod live_runs;
mod table;
mod workflow;
mod write;

pub(crate) use edit::ARCHIVED;
pub use edit::{create, erase, save};
pub use hold::{CLOCK_SKEW, find_held_for_fire, hold, lock, try_lock};
pub use live_runs::cancel_live_runs;
pub use table::{find, list};
pub use workflow::{Filter, Saved, State, Sync, SyncStatus, Workflow};
