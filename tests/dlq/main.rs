//! Dead letters: an operator lists, redrives and discards them, and no message is lost.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod discarded;
mod front;
mod interrupted;
mod looked_at;
mod queue;
mod redriven;
mod unanswered;
