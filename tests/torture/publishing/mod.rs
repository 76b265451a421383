//! Histories of publishing: edits, publishers, sweeps, and changes in EventBridge that cronbox did not make.

pub(crate) mod ablations;
mod editor;
pub(crate) mod history;
mod invariants;
mod oracle;
mod stale_reads;
pub(crate) mod wire;
