//! Step 3 of 7: how the publisher reaches its database.

pub(crate) mod error;
pub(crate) mod login;
mod secret;
