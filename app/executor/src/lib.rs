//! Step 7 of 7: executes accepted runs, a bounded number at once, until the process shuts down.
//!
//! It polls, because a run must not depend on the instance that accepted it; a notification only shortens the wait.
//! Each attempt has a lease, which a heartbeat renews. Runs that this process claimed but does not execute are returned
//! at once; runs that it cannot finish at shutdown are handed over to another instance.

mod attempt;
mod call;
mod executor;
mod heartbeat;
mod own;
mod parts;
mod run;
mod shares;
#[cfg(debug_assertions)]
mod steps;
mod wake;

pub use executor::Executor;
pub use parts::{Parts, Settings};
#[cfg(debug_assertions)]
pub use steps::Step;
pub use wake::Wake;
