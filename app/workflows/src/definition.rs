//! Step 1 of 7: what a client may write: the fields of a workflow and their rules. No statement, no clock.

pub mod action;
pub mod body;
pub mod field;
pub mod hidden_changes;
pub mod labels;
pub mod patch;
pub mod policies;
pub mod redaction;
pub mod reference;
pub mod sealed;
pub mod secret_inputs;
pub mod spec;
