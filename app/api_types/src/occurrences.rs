//! Due times and what was decided about them.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::reasons::ReasonCode;

/// An occurrence.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct OccurrenceView {
    /// Its id.
    pub id: Uuid,
    /// The workflow.
    pub workflow_id: i64,
    /// The time that the schedule named; null: no schedule fired it.
    pub scheduled_time: DateTime<Utc>,
    /// What was decided.
    pub decision: Decision,
    /// Why it was decided so, in a sentence. Do not parse it: read `reason_code`.
    pub reason: Option<String>,
    /// Why it was decided so. With `paused`, `reason` is the text of the person who paused the workflow.
    pub reason_code: Option<ReasonCode>,
    /// The revision.
    pub revision: Option<i64>,
    /// The run.
    pub run_id: Option<Uuid>,
    /// Seconds from the scheduled time to the decision.
    pub lateness_s: i64,
    /// When it was decided.
    pub decided_on: DateTime<Utc>,
}

/// An occurrence in a list of all schedules.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct NamedOccurrenceView {
    /// The occurrence.
    #[serde(flatten)]
    pub occurrence: OccurrenceView,
    /// The name of the workflow; null if it was deleted.
    pub workflow_name: Option<String>,
}

/// The decision about a due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The time ran.
    Fired,
    /// The time ran late, by the catch-up policy.
    CaughtUp,
    /// The time ran by a backfill.
    Backfilled,
    /// The time did not run, because the previous run had not ended.
    SkippedOverlap,
    /// The time did not run, because the workflow was paused.
    SkippedPaused,
    /// The time did not run, because no fire arrived in time.
    Missed,
    /// The run of the time was abandoned.
    Abandoned,
}
