//! Step 7 of 7: the only way out of the service. Every request that leaves it passes here: http actions today.
//!
//! This crate decides which addresses may be reached, and connects only to addresses that it has checked. It imports no
//! crate of ours, so that each crate of the app may use it. It must not depend on sqlx, axum or an AWS client.

mod address;
pub mod allowed;
mod client;
mod departure;
mod special_purpose;

pub use client::{CONNECT_TIMEOUT, Client};
pub use departure::{Departing, Departure};
