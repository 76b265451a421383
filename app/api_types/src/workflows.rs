//! Workflows and their synchronization to EventBridge.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::actions::ActionBody;
use crate::raw::RawJson;
use crate::reasons::ReasonCode;
use crate::results::ResultsView;

/// A workflow.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct WorkflowView {
    /// Its id.
    pub id: i64,
    /// The team.
    pub team_id: i64,
    /// Its name.
    pub name: String,
    /// For people; null: none.
    pub description: Option<String>,
    /// For selection.
    pub labels: BTreeMap<String, String>,
    /// Five fields: minute, hour, day of the month, month, day of the week; null: it has no schedule.
    pub cron_schedule: Option<String>,
    /// An IANA name; null = UTC.
    pub timezone: Option<String>,
    /// A label: the workflow is also called by API.
    pub is_api: bool,
    /// Header values are write-only and read as null, and so is a value that is marked as `{"secret": value}`. A viewer
    /// sees only the origin of `url`. In lists a `body` of more than 1 KiB is null, and a `message` of
    /// more than 1,024 characters is cut: read the workflow for all of it.
    #[schema(value_type = ActionBody)]
    pub action: Value,
    /// The stored size of an action of which a list leaves out a part, in bytes; else null.
    pub action_bytes: Option<i32>,
    /// A value that is marked as `{"secret": value}` reads as null. In lists null if they are larger than 1 KiB: read the
    /// workflow for all of them.
    #[schema(value_type = Option<Object>)]
    pub starting_inputs: Option<RawJson>,
    /// The stored size of inputs that a list leaves out, in bytes; else null.
    pub starting_inputs_bytes: Option<i32>,
    /// No time before this is due.
    pub starts_at: Option<DateTime<Utc>>,
    /// No time at or after this is due.
    pub ends_at: Option<DateTime<Utc>>,
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
    /// How many seconds one attempt may take.
    pub timeout_secs: i32,
    /// How many attempts may fail before the run fails.
    pub max_attempts: i32,
    /// What happens to a run whose instance was lost.
    pub on_lost: OnLost,
    /// cronbox pauses it after so many failed runs in a row; null: never.
    pub pause_after_failures: Option<i32>,
    /// The file that manages it; null = the API.
    pub managed_by: Option<String>,
    /// The ETag.
    pub version: i64,
    /// Raised by each change of timing or state.
    pub revision: i64,
    /// How far EventBridge has applied its edits.
    pub sync: SyncView,
    /// The next time that it will run by its schedule, unless a freeze stops it: `GET /freezes?open=true` has these.
    pub next_fire_at: Option<DateTime<Utc>>,
    /// What became of its last runs; null unless the request has `results=true`.
    pub results: Option<ResultsView>,
    /// When it was created.
    pub created_on: DateTime<Utc>,
    /// When it last changed.
    pub updated_on: DateTime<Utc>,
}

/// What happens to a fire while a previous run has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It is not run, and the ledger records it as skipped.
    Skip,
    /// It waits, behind at most 99 other runs.
    Queue,
    /// It waits, if no run waits yet.
    QueueOne,
    /// It cancels the previous run, and runs after that has ended.
    Replace,
    /// It runs concurrently, up to `max_concurrent`.
    Concurrent,
}

/// Which missed times run late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// None.
    None,
    /// Only the newest.
    Skip,
    /// All, the oldest first.
    RunAll,
}

/// What happens to a run whose instance was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnLost {
    /// The same run continues, under the same id.
    Retry,
    /// It is abandoned.
    Abandon,
}

/// Who paused a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PausedBy {
    /// A client of the API.
    Client,
    /// cronbox, because runs failed in a row (`pause_after_failures`).
    Cronbox,
}

/// Whether the times of a workflow are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// They are due.
    Active,
    /// No time is due until the workflow is resumed.
    Paused,
    /// Final; the history remains.
    Archived,
}

/// How far EventBridge has applied the edits of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SyncStatus {
    /// The publisher has not applied the newest revision yet.
    Pending,
    /// EventBridge has the schedule that the workflow needs.
    Synced,
    /// It failed permanently; the next edit tries again.
    Failed,
    /// EventBridge was changed by another program; the publisher will repair it.
    Drifted,
    /// The workflow never had a schedule.
    None,
}

/// How far EventBridge has applied the edits of a workflow.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct SyncView {
    /// Whether EventBridge has what the workflow needs.
    pub status: SyncStatus,
    /// The newest requested revision.
    pub desired_revision: Option<i64>,
    /// The revision that EventBridge has acknowledged.
    pub applied_revision: Option<i64>,
    /// The class of the last error; null if the next attempt decides.
    pub error_class: Option<String>,
    /// The last error. Only admins read the words of EventBridge.
    pub last_error: Option<String>,
    /// When EventBridge last acknowledged an edit.
    pub applied_at: Option<DateTime<Utc>>,
}
