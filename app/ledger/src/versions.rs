//! Step 1 of 7: the history of a workflow's timing. `:invoke` decides every fire by the version in force at its time.

mod read;
mod version;

pub use read::{by_revision, during, in_force, of_all, over};
pub use version::{DueCheck, EndedBy, Version};
