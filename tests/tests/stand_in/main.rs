//! The crates `stand-in`, which behaves like AWS, and `local`: a stack for tests, and `cronbox-local up`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agreement;
mod clients;
mod faults;
mod fires;
mod judged;
mod limits;
mod moto;
mod program;
mod stack;
mod up;
