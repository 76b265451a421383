//! An operator's steps against moto's server: build the zips, apply, use, destroy. `make terraform` runs these tests.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod account;
mod apply;
mod dead_letters;
mod environments;
mod functions;
mod policies;
mod terraform;
mod zips;
