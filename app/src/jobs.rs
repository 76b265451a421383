//! Step 7 of 7: the background jobs: what must happen though nobody asks.
//!
//! A job is a reconciler: it takes no input, looks at the database, does a bounded batch of what is
//! to be done, and says what it did; done twice, it does no harm. Its next turn is its retry. The
//! table `jobs` sees to it that each is at work on one instance at a time, and never beside itself.

mod job;
mod passes;
mod registry;
mod table;
mod turns;

pub use job::{Did, Job, Work};
pub use registry::registry;
pub use table::{LastResult, Status, list};
pub(crate) use turns::take_turns;
