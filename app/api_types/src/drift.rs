//! How EventBridge differs from the database.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// The known drift.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct DriftView {
    /// The newest finished sweep; null: none yet.
    pub last: Option<SweepView>,
    /// The sweep that is requested or in progress.
    pub open: Option<SweepView>,
    /// Workflows whose schedule is known to differ and is not repaired yet; at most 200.
    pub workflows: Vec<DriftedView>,
    /// Schedules that belong to no workflow; at most 200.
    pub orphans: Vec<OrphanView>,
}

/// A comparison of EventBridge with the database.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct SweepView {
    /// Its id.
    pub id: i64,
    /// Public prefix of the key that requested it, or `publisher` for a periodic sweep.
    pub requested_by: String,
    /// Whether it may delete many orphans and make many changes.
    pub force: bool,
    /// When it was requested.
    pub requested_on: DateTime<Utc>,
    /// When it started; null: it has not.
    pub started_on: Option<DateTime<Utc>>,
    /// When it ended; null: it has not.
    pub finished_on: Option<DateTime<Utc>>,
    /// Counts of what was found and changed so far; empty before it starts.
    #[schema(value_type = Object)]
    pub report: Value,
}

/// A workflow whose schedule differs.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct DriftedView {
    /// The workflow.
    pub workflow_id: i64,
    /// Null once the workflow is deleted.
    pub name: Option<String>,
    /// `missing`, `orphan`, `changed`, `stale_template` or `disabled_out_of_band`.
    pub class: String,
    /// Why it is not repaired yet.
    pub last_error: Option<String>,
}

/// A schedule that belongs to no workflow.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct OrphanView {
    /// Its name.
    pub name: String,
    /// When a sweep first saw it.
    pub first_seen: DateTime<Utc>,
    /// When a sweep last saw it.
    pub last_seen: DateTime<Utc>,
}
