//! Step 7 of 7: the only way out of the service. Every request that leaves it passes here: http actions,
//! notifications with their e-mails, the documents of the identity provider, and the pings of the heartbeat. Only traces do
//! not: the crate `traces` sends them to the collector that an operator names.
//!
//! This crate decides which addresses may be reached, and connects only to addresses that it has checked. Of our
//! crates it imports only `schedule`, for the time of leases, so that each crate of the app may use it. It must not depend
//! on sqlx, axum or an AWS client.

mod address;
pub mod allowed;
mod client;
mod connection;
mod connector;
mod departure;
pub mod hosts;
pub mod mail;
pub mod ports;
pub mod resolver;
mod special_purpose;

pub use client::{Answer, Client, Outgoing, SendError};
pub use departure::{Departing, Departure};
