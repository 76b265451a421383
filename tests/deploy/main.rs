//! An operator's steps against moto's server: build the zips and the image, apply, use, destroy. `make terraform` runs these tests.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod account;
mod apply;
mod dead_letters;
mod environments;
mod functions;
mod image;
mod ministack;
mod network;
mod policies;
mod rehearsal;
mod terraform;
mod upgrade;
mod whole;
mod zips;
