//! Step 7 of 7: decides what a fire means. A cache is the fast path, the table is the judge.
//!
//! EventBridge is only the alarm clock: it may repeat, lag, or fire by an old schedule. So every
//! fire is judged by the schedule version that was in force *at its time*, under the workflow's
//! lock, and the decision, the occurrence and the run commit together.

mod answer;
mod decide;
mod decide_fire;
mod disagreement;
mod group;
mod plain;

pub use answer::{Answer, Reason};
pub use decide_fire::Judge;
