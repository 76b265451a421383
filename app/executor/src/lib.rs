//! Step 7 of 7, the second half: executes accepted runs, a bounded number at once, until the process shuts down.
//!
//! It polls, because a run must not depend on the instance that accepted it; a notification only shortens the wait.
//! Each attempt has a lease, which a heartbeat renews. Runs that this process claimed but does not execute are returned
//! at once; runs that it cannot finish at shutdown are handed over to another instance.
//!
//! This crate imports `schedule`, `db`, `egress`, `workflows` and `ledger`. It must not import `access`: no key decides about a
//! run. It must not depend on axum or on an AWS client.

pub mod actions;
mod activity;
mod attempt;
mod attempts_in_flight;
mod auto_pause;
mod call;
pub mod claim;
pub mod context;
pub mod document;
mod ends;
mod executor;
pub mod hand_over;
mod heartbeat;
mod next_try;
pub mod recovery;
mod run;
mod settings;
mod shutdown;
mod started;
#[cfg(debug_assertions)]
mod test_controls;
pub mod timeouts;
mod wake;

pub use activity::Activity;
pub use executor::{Executor, Parts};
pub use settings::Settings;
pub use shutdown::Shutdown;
#[cfg(debug_assertions)]
pub use test_controls::Step;
pub use wake::Wake;
