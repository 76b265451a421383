//! Schedules.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::reasons::ReasonCode;
use crate::results::ResultsView;
use crate::workflows::{CatchUp, Overlap, PausedBy, State, SyncView};

/// A schedule.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct ScheduleView {
    /// The workflow.
    pub workflow_id: i64,
    /// The team.
    pub team_id: i64,
    /// The name of the workflow.
    pub name: String,
    /// Five fields: minute, hour, day of the month, month, day of the week; null: it has no schedule.
    pub cron_schedule: String,
    /// An IANA name; null = UTC.
    pub timezone: Option<String>,
    /// No time before this is due.
    pub starts_at: Option<DateTime<Utc>>,
    /// No time at or after this is due.
    pub ends_at: Option<DateTime<Utc>>,
    /// What happens to a fire while a previous run has not ended.
    pub overlap_policy: Overlap,
    /// How many of its runs may be active at once.
    pub max_concurrent: i32,
    /// Which missed times run late.
    pub catch_up_policy: CatchUp,
    /// Seconds. A missed time that is older does not run any more.
    pub catch_up_window_secs: i32,
    /// Each run starts later by a fixed part of this many seconds.
    pub spread_secs: i32,
    /// cronbox pauses it after so many failed runs in a row; null: never.
    pub pause_after_failures: Option<i32>,
    /// Its state.
    pub state: State,
    /// The text of the person who paused it, or a sentence of cronbox.
    pub pause_reason: Option<String>,
    /// `failures_in_a_row` if cronbox paused it.
    pub pause_reason_code: Option<ReasonCode>,
    /// Who paused it; null: it is not paused, or a version before this field paused it.
    pub paused_by: Option<PausedBy>,
    /// When the pause ends automatically.
    pub pause_until: Option<DateTime<Utc>>,
    /// The file that manages it; null = the API.
    pub managed_by: Option<String>,
    /// The workflow's ETag.
    pub version: i64,
    /// Raised by each change of timing or state.
    pub revision: i64,
    /// How far EventBridge has applied its edits.
    pub sync: SyncView,
    /// The next time that it will run, unless a freeze stops it: `GET /freezes?open=true` has these.
    pub next_fire_at: Option<DateTime<Utc>>,
    /// What became of the last runs; only in lists, and null unless the request has `results=true`.
    pub results: Option<ResultsView>,
    /// When it last changed.
    pub updated_on: DateTime<Utc>,
}
