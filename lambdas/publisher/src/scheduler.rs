//! Step 4 of 7: EventBridge Scheduler: schedules, calls, refusals, and when a call is permitted.

pub(crate) mod client;
pub(crate) mod existing;
pub(crate) mod fault;
pub(crate) mod identity;
pub(crate) mod lease;
pub(crate) mod list;
pub(crate) mod rate;
pub(crate) mod spec;
