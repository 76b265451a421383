//! A model of the two protocols on which the promise rests, for the checker of `stateright`.
//!
//! | model | steps | what it has |
//! |---|---|---|
//! | [`publishing`] | 1 to 4 | edits, two publishers, their claims, calls, settles and verify passes, late requests |
//! | [`execution`] | 7 | repeated fires, two instances, their claims, leases and ends of runs, recovery, overlap |
//!
//! An action is one transaction of the code, one request to EventBridge, or one thing that happens to a process. Its
//! documentation names the function. Faults, edits and deliveries are bounded, so no path is endless: each ends in a
//! state without actions, and "eventually" holds if it holds there. `tests/states.rs` visits every state,
//! `tests/ablations.rs` takes one remedy away at a time, and `tests/conformance.rs` walks through the models at random
//! and compares each state with the database that the real functions write.
//!
//! This crate imports nothing of ours, so that it shares no mistake with the code.

pub mod check;
pub mod execution;
pub mod publishing;
pub mod walk;
