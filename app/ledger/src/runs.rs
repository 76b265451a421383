//! Step 7 of 7: executions of workflows, and the statements on the table `runs`.
//!
//! A run is accepted in the transaction of its occurrence. An executor claims it by a guarded UPDATE that raises
//! `attempt`. Every later UPDATE names that attempt, so an executor that has lost its run cannot change it
//! (`claim.rs` of the executor).

mod abandon;
mod cancel;
mod list;
mod run;

pub use abandon::abandon_runs;
pub use cancel::{Cancelled, cancel_run};
pub use list::{Filter, list_runs};
pub use run::{New, Run, RunState, accept_run, find_run};
pub use workflows::trigger::Trigger;
