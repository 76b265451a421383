//! Step 7 of 7: the notifier sends messages of channels of the kind `aws` to event buses and SNS topics.
//!
//! [`Notifier::run_tick`] claims messages that are due, with a lease, sends each without a transaction, and settles it:
//! by the functions with which the app delivers all others. If the process is killed in between, the lease ends and the
//! message is sent again, under its id. Several notifiers at once claim different messages.

mod carrier;
mod config;
mod lambda;
mod metrics;
mod notifier;
mod report;

pub use config::Config;
pub use lambda::serve_lambda;
pub use notifier::Notifier;
pub use report::Report;
