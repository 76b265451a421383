//! The instances of the app.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// The instances of the app.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct InstancesView {
    /// Each of them.
    pub items: Vec<InstanceView>,
}

/// An instance of the app.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct InstanceView {
    /// The id by which it owns the leases of runs (`locked_by`) and jobs.
    pub id: Uuid,
    /// The version of its program.
    pub version: String,
    /// Its state.
    pub state: InstanceState,
    /// When it started; null: it has not.
    pub started_on: DateTime<Utc>,
    /// Its last sign; it gives one every 10 s.
    pub seen_on: DateTime<Utc>,
    /// How many runs it executes at once.
    pub slots: i32,
    /// How many it executes now.
    pub running_runs: i64,
    /// Whether it takes background jobs.
    pub takes_jobs: bool,
    /// The background jobs that it runs now.
    pub jobs: Vec<String>,
}

/// What an instance does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InstanceState {
    /// It serves.
    Live,
    /// It shuts down: it accepts fires, and starts no more runs.
    Stopping,
    /// It gave no sign for a minute, and did not say that it stopped.
    Lost,
}
