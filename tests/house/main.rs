//! The rules of the house: which crate and which file may import which, and what sources and migrations must not contain.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod advisories;
mod crates;
mod documents;
mod imports;
mod migrations;
mod monitoring;
mod order;
mod permissions;
mod single_source;
mod sources;
mod variables;
