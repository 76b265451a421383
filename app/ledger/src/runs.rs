//! Step 7 of 7: executions of workflows, and the statements on the table `runs`.
//!
//! A run is accepted in the transaction of its occurrence. An executor claims it by a guarded UPDATE that raises
//! `attempt`, or the run of a fire begins with its first attempt (`offered_slots.rs`). Every later UPDATE names that
//! attempt, so an executor that has lost its run cannot change it (`claim.rs` of the executor).

mod abandon;
mod attempts;
mod cancel;
mod detail;
mod list;
mod offered_slots;
mod results;
mod run;

pub use abandon::abandon_runs;
pub use attempts::{Attempt, AttemptEnd, list_attempts, remove_old_attempts};
pub use cancel::{Cancelled, cancel_run};
pub use detail::{RunDetail, find_detail, find_last_scheduled_time};
pub use list::{Filter, MOST_COUNTED, count_runs, list_runs};
pub(crate) use offered_slots::Taken;
pub use offered_slots::{Capacity, Claimable, OfferedSlots, SlotOffer, StartedRun, StartedRuns, TakenSlots};
pub use results::{Results, RunResult, WeekOfRuns, read_results};
pub use run::{New, Run, RunState, accept_run, find_run};
pub use workflows::trigger::Trigger;
