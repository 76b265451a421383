//! Step 7 of 7: backfills: runs for past times on request, beside the live schedule.
//!
//! A backfill selects its times from the schedule versions and the ledger. It neither reads nor changes the live
//! cursor. Its own cursor advances in the transaction that creates its runs.

mod advance;
mod backfill;
mod list;
mod request;
mod select;
mod table;

pub use advance::{BackfillCursor, JOB, PASS, Pass, advance_backfills, refill_backfill};
pub use backfill::{Backfill, BackfillRequest, Only, Order, State, Timing};
pub use list::{Filter, list_backfills};
pub use request::{BackfillOutcome, MOST, Verb, apply_verb, count_selected_times, create_backfill};
pub use table::{find_backfill, find_workflow_of, pause_running};
