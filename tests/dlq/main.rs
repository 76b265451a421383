//! Dead letters: an operator lists, redrives and discards them, and no message is lost.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod discard;
mod interruption;
mod listing;
mod mirror;
mod missing_answers;
mod proxy;
mod queue;
mod redrive;
