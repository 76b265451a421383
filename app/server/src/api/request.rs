//! Steps 1 and 7 of 7: what all handlers share: the caller, the parts of a request, pages and errors.

pub mod auth;
pub mod error;
pub mod extract;
pub mod page;
