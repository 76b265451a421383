//! Step 7 of 7: the proof. Every due time of a span against its decision, every decision against its runs.
//!
//! Due times are computed anew from the schedule versions, each by the zone data that were in force at it: no
//! cursor is believed. A span is compared day by
//! day and page by page, so that memory and each transaction stay small whatever the span and however many
//! the workflows; each page is read in one snapshot and evaluated off the async threads.

mod compare;
mod cursor;
mod evaluate;
mod findings;
mod read;
mod settled;

pub use compare::{compare, start};
pub use cursor::{Cursor, Position};
pub use findings::{Difference, Findings, Kind, Span, Unfit, Unjudged};
