//! The crate `local`: a stand-in that is as AWS is, a stack for a test, and all of it for a person.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agreement;
mod clients;
mod faults;
mod fires;
mod judged;
mod limits;
mod moto;
mod stack;
mod up;
