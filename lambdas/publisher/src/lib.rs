//! Steps 3 and 4 of 7: the publisher drains the outbox into EventBridge Scheduler.
//!
//! [`Publisher::drain_outbox`] is a pipeline of batches: **claim** what is due, by workflow (`claim.rs`), **read** the
//! current state of those workflows (`claim/workflows.rs`, `converge/desired.rs`), **converge** their schedules without
//! an open transaction or a connection in use (`converge.rs`, `scheduler/client.rs`), and **settle** the outcomes,
//! fenced by epoch (`settle.rs`). While one batch waits for EventBridge, the next is claimed and the previous one is
//! settled.
//!
//! [`Publisher::sweep_schedules`] periodically compares all schedules in EventBridge with the database, and makes the
//! drain repair what other programs have changed (`sweep.rs`).
//!
//! [`Publisher::mirror_dead_letters`] records the messages of the dead-letter queues in the database, and redrives those that
//! operators have requested there (`letters.rs`).
//!
//! The publisher is a reconciler: if a process crashes, its lease expires and another one checks the workflow again.
//! Nothing is replayed, so repeats do no harm. However many publishers run, only one processes a workflow at a time.

mod arn;
mod claim;
mod config;
mod converge;
mod database_error;
mod drain;
mod entry;
mod failpoint;
mod last_check;
mod letters;
mod metrics;
mod publisher;
mod report;
mod scheduler;
mod settle;
mod stopwatch;
mod sweep;

pub use config::{Arguments, Config, DeadLetterSettings};
pub use entry::lambda::serve_lambda;
#[cfg(debug_assertions)]
pub use failpoint::{Fault, Hook, Point};
pub use publisher::Publisher;
pub use report::{Report, Stopped, Unsettled};
pub use scheduler::client::scheduler_client;
#[cfg(debug_assertions)]
pub use stopwatch::Stopwatch;
pub use sweep::{Findings, Swept};
