//! Step 7 of 7: verification. Compares every due time of a span with its decision, and every decision with its runs.
//!
//! Due times are computed again from the schedule versions, each by the zone data that were in force at it; no cursor
//! is trusted. A span is compared day by day and page by page, so that memory and each transaction stay small for any
//! span and any number of workflows. Each page is read in one snapshot and evaluated off the async threads.

mod compare;
mod cursor;
pub mod daily;
mod evaluate;
mod findings;
mod latest_end;
mod read;

pub use compare::{compare_span, find_start};
pub use cursor::{Cursor, Position};
pub use findings::{Difference, Findings, Kind, Span, Unfit, Unjudged};
