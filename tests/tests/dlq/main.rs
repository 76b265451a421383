//! Dead letters: an operator looks at them, sends them again, lets them go, and nothing is lost by it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod discarded;
mod front;
mod interrupted;
mod looked_at;
mod queue;
mod redriven;
mod unanswered;
