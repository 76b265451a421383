//! The crates `stand-in`, which behaves like AWS, and `local`: a stack for tests, and `cronbox-local up`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clients;
mod compile_properties;
mod compile_samples;
mod faults;
mod fires;
mod limits;
mod local_up;
mod moto;
mod program;
mod stack;
mod web_pages;
