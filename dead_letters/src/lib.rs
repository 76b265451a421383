//! Steps 5 and 6 of 7: the fires that were not delivered, as SQS keeps them, and their delivery to the app.
//!
//! `cronbox dlq` and the publisher read the queues and redrive their messages. Both do it with this crate, so that a message
//! means the same to both, and is deleted by both only after the app has answered for its fire.

mod delivery;
mod message;
mod queue;

pub use delivery::{FireAnswer, FireClient, FireKey};
pub use message::{Content, DeadMessage, Origin};
pub use queue::Queue;
