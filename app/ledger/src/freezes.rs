//! Step 7 of 7: freezes, which stop the schedules of a team, or of all teams, for a time.
//!
//! A freeze changes no workflow: each keeps its own state, and EventBridge goes on to fire. A due time is frozen if a
//! freeze was in force at any instant from that time until its decision, or at that time if it is decided early.
//! `:invoke` and the watchdog decide it as `skipped_paused`; backfills do not advance, and no automatic run starts. What
//! a person requests is not held: a manual fire, and the retry of a run.

mod freeze;
mod list;
mod span;

pub use freeze::{Created, Freeze, Lifted, Request, create_freeze, lift_freeze, lock_freeze};
pub use list::{Listed, find_freeze, list_freezes, remove_old};
pub use span::{Freezes, read_freezes};
