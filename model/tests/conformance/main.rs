//! Walks through the models at random, does the same with the real functions on a real Postgres, and compares each
//! state of the model with the rows.
//!
//! A seed repeats its walk; a difference prints the actions up to it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

// Only debug builds have the points at which the publisher stops.
#[cfg(debug_assertions)]
mod ground;
#[cfg(debug_assertions)]
mod publishers;
#[cfg(debug_assertions)]
mod runs;
#[cfg(debug_assertions)]
mod wire;
