//! The API as a client sees it: its answers, its refusals, and its access rules.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cronbox;
mod drift;
mod fields;
mod instants;
mod limits;
mod matrix;
mod openapi;
mod outbox;
mod patches;
mod previews;
mod revoked;
mod schedules;
mod secrets;
mod tenants;
