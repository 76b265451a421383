//! Steps 3 and 4 of 7: the publisher drains the outbox into EventBridge Scheduler.
//!
//! [`Publisher::drain`] is a pipeline of batches: **claim** what is due, by workflow (`outbox.rs`), **read** the
//! current state of those workflows (`workflows.rs`, `desired.rs`), **converge** their schedules without an open
//! transaction or a connection in use (`converge.rs`, `schedules.rs`), and **settle** the outcomes, fenced by epoch
//! (`settle.rs`). While one batch waits for EventBridge, the next is claimed and the previous one is settled.
//!
//! [`Publisher::sweep`] periodically compares all schedules in EventBridge with the database, and makes the drain
//! repair what other programs have changed (`sweep.rs`).
//!
//! The publisher is a reconciler: if a process crashes, its lease expires and another one checks the workflow again.
//! Nothing is replayed, so repeats do no harm. However many publishers run, only one processes a workflow at a time.

mod arn;
mod backoff;
mod config;
mod converge;
mod database_error;
mod deployment;
mod desired;
mod drain;
mod evidence;
mod existing;
mod fault;
mod identity;
mod inject;
mod lambda;
mod last_check;
mod lease;
mod levels;
mod listen;
mod login;
mod metrics;
mod once;
mod outbox;
mod pipeline;
mod publisher;
mod rate;
mod report;
mod revive;
mod rollout;
mod schedules;
mod secret;
mod settle;
mod settlement;
mod sharers;
mod spec;
mod stopwatch;
mod sweep;
mod tick;
mod work;
mod workflows;

pub use config::{Arguments, Config, Database};
#[cfg(debug_assertions)]
pub use inject::{Fault, Hook, Point};
pub use lambda::serve as serve_lambda;
pub use login::Login;
pub use publisher::Publisher;
pub use report::{Report, Stopped, Unsettled};
pub use schedules::scheduler_client;
#[cfg(debug_assertions)]
pub use stopwatch::Stopwatch;
pub use sweep::{Findings, Swept};
