//! Histories of the ledger: fires, executors, recovery, overlap, catch-up and manual requests, on several instances of
//! the real app. Each instance can be stopped, killed or disconnected between any two of its statements.

mod ablation;
mod actions;
mod event_bridge;
mod final_checks;
mod history;
mod instance;
mod leases;
mod oracle;
mod proof_faults;
mod receiver;
mod step;

/// A secret header of the actions, which must appear in no log.
const PASSWORD: &str = "Bearer torture-f2a81c";

pub(crate) use ablation::Ablation;
pub(crate) use history::run;
pub(crate) use instance::Stage;
