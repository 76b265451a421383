//! The API as a client meets it: what it answers, what it refuses, and who may ask.

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
