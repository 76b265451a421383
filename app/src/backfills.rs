//! Step 7 of 7: backfills: times of the past that somebody wants run, worked off beside the live schedule.
//!
//! What is meant is read from the schedule versions and the ledger, never from the live cursor, which
//! a backfill does not touch either. Its own cursor moves in the transaction of the runs that it makes.

mod backfill;
mod meant;
mod request;
mod table;
mod work;

pub use backfill::{Backfill, Only, Order, State, Timing, Wish};
pub use request::{Asked, MOST, Verb, begin, count, operate};
pub use table::{Filter, find, list, pause_running};
pub use work::{JOB, Pass, pass, refill};
