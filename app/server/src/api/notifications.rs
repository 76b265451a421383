//! Step 7 of 7: the API of notifications: their channels and rules, what happened, and the messages about it.

pub mod channels;
pub mod messages;
pub mod notices;
pub mod rules;
