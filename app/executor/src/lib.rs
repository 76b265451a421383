//! Step 7 of 7, the second half: executes accepted runs, a bounded number at once, until the process shuts down.
//!
//! It polls, because a run must not depend on the instance that accepted it; a notification only shortens the wait.
//! Each attempt has a lease, which a heartbeat renews. Runs that this process claimed but does not execute are returned
//! at once; runs that it cannot finish at shutdown are handed over to another instance.
//!
//! This crate imports `schedule`, `db`, `workflows` and `ledger`. It must not import `access`: no key decides about a
//! run. It must not depend on axum or on an AWS client.

pub mod actions;
mod attempt;
mod call;
pub mod claim;
mod executor;
mod failures;
pub mod hand_over;
mod heartbeat;
mod next_try;
mod own;
mod parts;
pub mod recover;
mod run;
mod shares;
mod shutdown;
#[cfg(debug_assertions)]
mod steps;
pub mod timeouts;
mod wake;

pub use executor::Executor;
pub use parts::{Parts, Settings};
pub use shutdown::Shutdown;
#[cfg(debug_assertions)]
pub use steps::Step;
pub use wake::Wake;
