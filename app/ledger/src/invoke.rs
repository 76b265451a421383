//! Step 7 of 7: decides fires. A cache is the fast path; the table is authoritative.
//!
//! EventBridge only sends the signal: it may repeat a fire, delay it, or send it by an old schedule. So each fire is
//! decided by the schedule version that was in force *at its time*, under the workflow's lock. The decision, the
//! occurrence and the run commit together.

mod answer;
mod batch;
mod cases;
mod decide_fire;
mod disagreement;
mod on_time;
mod record;
mod slow_path;

pub use answer::{Answer, Reason};
pub use decide_fire::FireDecider;
