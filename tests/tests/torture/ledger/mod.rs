//! Histories of the ledger: fires, executors, recovery, overlap, catch-up and hands, on several instances
//! of the real app, each stopped, killed or cut off between any two of its statements.

mod ablation;
mod cast;
mod faults;
mod history;
mod instance;
mod judge;
mod leases;
mod oracle;
mod receiver;
mod step;

/// What an action sends to its receiver, for nobody else to know.
const PASSWORD: &str = "Bearer torture-f2a81c";

pub(crate) use ablation::Ablation;
pub(crate) use history::run;
pub(crate) use instance::Stage;
