//! The app of cronbox, the source of truth: the API, the background jobs, the metrics and the process.
//!
//! | step | file |
//! |---|---|
//! | 1 edit | `api/workflows.rs`, `api/workflows/`, `schedules_file.rs` -> the crate `workflows` |
//! | 7 run | `api/runs/invoke.rs`, `jobs/` -> the crate `ledger`; `run.rs` -> the crate `executor` |
//!
//! Steps 3 to 6 are the publisher's, EventBridge's and the runner's. This crate imports the other crates of the app; only
//! `local` and the tests import it. It must not depend on an AWS client, and its API has no SQL.

pub mod api;
pub mod cadence;
pub mod clock;
pub mod config;
mod connection;
mod console;
mod heartbeat;
pub mod identity_provider;
mod instances;
pub mod jobs;
mod lines;
pub mod metrics;
mod migrate;
mod operator_url;
mod pools;
mod refusals;
mod run;
pub mod schedules_file;
mod server;
mod state;

pub use config::Config;
pub use migrate::{migrate_database, migrate_database_unless_newer};
pub use pools::Pools;
pub use run::{Listeners, serve_app};
pub use server::bind_listener;
pub use state::{App, Parts};
