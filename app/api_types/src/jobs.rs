//! The background jobs.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// The background jobs.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct JobsView {
    /// Each of them.
    pub items: Vec<JobView>,
}

/// The state of a background job.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct JobView {
    /// Its name.
    pub name: String,
    /// Seconds as `60s`, or a cron; null: this version of the app does not know the job.
    pub schedule: Option<String>,
    /// The timezone of the cron; null: no cron.
    pub timezone: Option<String>,
    /// The instance that runs it now; null: none.
    pub locked_by: Option<Uuid>,
    /// When the lease of that instance expires.
    pub locked_until: Option<DateTime<Utc>>,
    /// When it last ran; null: never.
    pub last_run: Option<DateTime<Utc>>,
    /// How long the last run took.
    pub last_duration_ms: Option<i64>,
    /// Null: it has never run.
    pub last_result: Option<LastResult>,
    /// Why it failed.
    pub last_error: Option<String>,
    /// When it is due.
    pub next_run: DateTime<Utc>,
    /// How often it ran.
    pub run_count: i64,
    /// How often it failed.
    pub error_count: i64,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LastResult {
    /// It processed something.
    Success,
    /// It failed; `last_error` says why.
    Failed,
    /// There was nothing to do.
    Skipped,
}
