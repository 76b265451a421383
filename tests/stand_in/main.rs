//! The crate `local`: a stand-in that behaves like AWS, a stack for tests, and `local up`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clients;
mod compile_properties;
mod compile_samples;
mod faults;
mod fires;
mod limits;
mod local_up;
mod moto;
mod stack;
