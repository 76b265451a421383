//! Step 7 of 7: which run may start, which waits and which is skipped, by the overlap policy of its workflow.

pub(crate) mod load;
mod promote;
pub mod queue;
pub mod verdict;
