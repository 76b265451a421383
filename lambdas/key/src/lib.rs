//! Step 6 of 7: the scheduler key, with which the runner and the publisher post fires to the app.
//!
//! A rotation may store the new key before the app knows it, or revoke the old key before a sandbox has read the new one. So
//! a Lambda does not hold one key: for each request it takes the keys that may be right, one after the other, until the app
//! refuses none ([`Candidates::next_key`]).

mod key;
mod refusal;
mod secret;

pub use key::{Candidates, KeySource, SchedulerKey};
pub use refusal::{is_rate_limited, refuses_key};
