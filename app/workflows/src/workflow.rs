//! Step 1 of 7: workflows and their edits.
//!
//! Every change goes through [`create`], [`save`] or [`erase`]: the row, its audit entry and, when
//! the timing or the state changes, its schedule version and its outbox row, in one transaction.

mod edit;
mod live_runs;
mod lock;
mod read;
mod record;
mod write;

pub use edit::{create, erase, save};
pub use live_runs::cancel_live_runs;
pub use lock::{CLOCK_SKEW, find_locked_for_fire, lock, lock_row, try_lock};
pub use read::{find, list};
pub use record::{Filter, Saved, State, Sync, SyncStatus, Workflow};
