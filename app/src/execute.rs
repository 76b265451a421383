//! Step 7 of 7: executes accepted runs, a bounded number at once, until the process shuts down.
//!
//! It polls, because a run must not depend on the instance that accepted it; a notification only spares the wait.
//! Each attempt has a lease, renewed by a heartbeat. What this process claimed and does not execute is given back at
//! once; what it cannot finish at shutdown is handed over to another instance.

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
