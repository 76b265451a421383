//! What became of the last runs of a workflow.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::reasons::ReasonCode;
use crate::runs::{RunState, Trigger};

/// What became of the last runs of a workflow.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct ResultsView {
    /// Its newest run, whether it has ended or not; null: it has none.
    pub last_run: Option<LastRunView>,
    /// Its last ended runs, the newest first; at most 20.
    pub recent: Vec<RecentRunView>,
    /// How many of its runs failed or timed out since the last one that succeeded, in the order in which they ended.
    /// Cancelled and abandoned runs do not count.
    pub failures_in_a_row: i32,
    /// Its ended runs of the last week.
    pub week: WeekView,
}

/// The newest run of a workflow.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct LastRunView {
    /// Its id.
    pub id: Uuid,
    /// Its state.
    pub state: RunState,
    /// What started it.
    pub trigger: Trigger,
    /// Null for a run that no schedule fired.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// When it was created.
    pub created_on: DateTime<Utc>,
    /// When it ended; null: it has not.
    pub finished_on: Option<DateTime<Utc>>,
    /// From its start to its end; null: it has not ended, or never started.
    pub duration_ms: Option<i64>,
    /// Why it failed or ended early, in a sentence. Do not parse it: read `error_code`.
    pub error: Option<String>,
    /// Why it ended early; null for the error of an action.
    pub error_code: Option<ReasonCode>,
}

/// An ended run.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct RecentRunView {
    /// Its id.
    pub id: Uuid,
    /// Its state.
    pub state: RunState,
    /// What started it.
    pub trigger: Trigger,
    /// Null for a run that no schedule fired.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// When it ended; null: it has not.
    pub finished_on: Option<DateTime<Utc>>,
    /// From its start to its end; null: it has not ended, or never started.
    pub duration_ms: Option<i64>,
}

/// The ended runs that were accepted within the last week. Of more than 200, only the newest 200 count.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct WeekView {
    /// How many.
    pub runs: i64,
    /// Succeeded of these, 0 to 1; null: there are none.
    pub success_rate: Option<f64>,
    /// 95 of 100 took at most this long; null: there are none.
    pub p95_duration_ms: Option<i64>,
}
