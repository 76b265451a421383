//! Step 7 of 7: the background jobs, which run without a request.
//!
//! A job is a reconciler: it has no input, scans the database, processes a bounded batch, and reports what it did.
//! Repeating it does no harm, so its next turn is its retry. The table `jobs` ensures that each job runs on one
//! instance at a time, and never twice at once.

mod heartbeat;
mod job;
mod notification_passes;
mod passes;
pub mod prune;
mod registry;
pub(crate) mod table;
mod turns;

pub use job::{Did, Job, JobFunction};
pub use registry::all_jobs;
pub use table::{LastResult, Status, list_statuses};
pub(crate) use turns::take_turns;
