//! The crate `local`: a stand-in that behaves like AWS, a stack for tests, and `local up`.

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
