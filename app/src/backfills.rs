//! Step 7 of 7: backfills: runs for past times on request, beside the live schedule.
//!
//! A backfill selects its times from the schedule versions and the ledger. It neither reads nor changes the live
//! cursor. Its own cursor advances in the transaction that creates its runs.

mod backfill;
mod request;
mod select;
mod table;
mod work;

pub use backfill::{Backfill, BackfillRequest, Only, Order, State, Timing};
pub use request::{BackfillOutcome, MOST, Verb, begin, count, operate};
pub use table::{Filter, find, list, pause_running};
pub use work::{JOB, Pass, pass, refill};
