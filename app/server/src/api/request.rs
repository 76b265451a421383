//! Steps 1 and 7 of 7: what all handlers share: requests in flight, the caller, bodies and queries, reads, pages
//! and errors.

pub mod auth;
mod bearer;
pub(crate) mod client_address;
pub mod conditions;
pub mod dry_run;
pub(crate) mod edit_transaction;
pub mod error;
pub(crate) mod etag;
pub mod extract;
pub(crate) mod in_flight;
pub(crate) mod json;
pub mod limits;
pub mod page;
pub mod problem_codes;
pub(crate) mod read;
pub(crate) mod refused;
pub(crate) mod repeat;
pub(crate) mod request_id;
pub(crate) mod streams;
pub(crate) mod team;
mod timed_body;
pub(crate) mod view;
