//! Step 6 of 7: the runner passes a fire to the app's idempotent `:invoke`.
//!
//! EventBridge invokes it asynchronously: after an error Lambda tries twice again and then puts the event into the
//! on-failure queue. So only an answer of the app itself counts as delivered ([`Delivered`]); any other answer, or
//! none, is an error.

mod config;
mod delivery;
mod lambda;

pub use config::{ALL_TRIES, Config, Limits, TRY};
pub use delivery::{DeliverError, Runner};
pub use lambda::serve_lambda;
pub use schedule::Delivered;
pub use scheduler_key::KeySource;
