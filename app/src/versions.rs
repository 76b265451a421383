//! Step 1 of 7: which timing was in force when. `:invoke` evaluates every fire by it.

mod read;
mod version;

pub use read::{by_revision, in_force, of_all, over};
pub use version::{EndedBy, Owes, Unknown, Version};
