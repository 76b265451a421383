//! Step 1 of 7: the history of a workflow's timing. `:invoke` decides every fire by the version in force at its time.

mod list;
mod read;
mod version;

pub use list::{ListedVersion, list_versions};
pub use read::{find_by_revision, find_in_force, read_during, read_of_all, read_over};
pub use version::{DueCheck, EndedBy, Version};
