//! Runs and their attempts.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::raw::RawJson;
use crate::reasons::ReasonCode;

/// A run.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct RunView {
    /// Its id.
    pub id: Uuid,
    /// The workflow.
    pub workflow_id: i64,
    /// The name of the workflow; null if it was deleted.
    pub workflow_name: Option<String>,
    /// What started it.
    pub trigger: Trigger,
    /// Its state.
    pub state: RunState,
    /// The time that the schedule named; null: no schedule fired it.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// How often it was claimed: the number of its last attempt.
    pub attempt: i32,
    /// When it was created.
    pub created_on: DateTime<Utc>,
    /// When it started; null: it has not.
    pub started_on: Option<DateTime<Utc>>,
    /// When it ended; null: it has not.
    pub finished_on: Option<DateTime<Utc>>,
    /// From its start to its end; null: it has not ended, or never started.
    pub duration_ms: Option<i64>,
    /// What the action answered. In lists null if it is larger than 1 KiB: read the run for all of it.
    #[schema(value_type = Option<Object>)]
    pub result: Option<RawJson>,
    /// The stored size of a result that a list leaves out, in bytes; else null.
    pub result_bytes: Option<i32>,
    /// Why it failed or ended early, in a sentence. Do not parse it: read `error_code`.
    pub error: Option<String>,
    /// Why it ended early; null for the error of an action.
    pub error_code: Option<ReasonCode>,
}

/// A run with all that is known of it.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct RunDetailView {
    /// What a list shows of it.
    #[serde(flatten)]
    pub run: RunView,
    /// The team.
    pub team_id: i64,
    /// The occurrence that it runs; null = manual.
    pub occurrence_id: Option<Uuid>,
    /// The run that it repeats: the first one, however often it was repeated.
    pub retry_of: Option<Uuid>,
    /// The backfill that created it.
    pub backfill_id: Option<Uuid>,
    /// The inputs of this run alone; null = those of the workflow. A value that is marked as `{"secret": value}` reads as null.
    #[schema(value_type = Option<Object>)]
    pub inputs: Option<Value>,
    /// How many of its attempts had an answer that failed; the run fails at the workflow's `max_attempts`.
    pub tries: i32,
    /// How often it went on after its instance was lost.
    pub recoveries: i32,
    /// How often an instance that stopped handed it over.
    pub handed_over: i32,
    /// It does not start before: a spread, or the pause after an answer that failed.
    pub run_after: DateTime<Utc>,
    /// When its end was requested, by `:cancel` or by the overlap policy `replace`.
    pub cancel_requested_on: Option<DateTime<Utc>>,
    /// Why its end was requested, in a sentence; null = a caller requested it.
    pub cancel_reason: Option<String>,
    /// The instance that executes it.
    pub locked_by: Option<Uuid>,
    /// What an attempt answered after it had lost the run: its action ran twice.
    #[schema(value_type = Option<Object>)]
    pub late_result: Option<Value>,
    /// The trace of the request that created it, 32 hex digits; of a fire null unless traces are on.
    pub trace_id: Option<String>,
    /// The context that its last attempt passed to the action; null: none has started.
    pub context: Option<RunContextView>,
    /// Its attempts in their order, the present or the last one included; the newest 200.
    pub attempts: Vec<AttemptView>,
}

/// Why and how late the last attempt of a run happened, as the action got it.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct RunContextView {
    /// The run replaces a time that was missed.
    pub is_catch_up: bool,
    /// The run went on after its instance was lost or ended: the receiver may have seen an earlier attempt.
    pub is_recovery: bool,
    /// Seconds from the scheduled time to the start of the attempt.
    pub lateness_s: i64,
    /// The scheduled time; null for a manual run.
    pub original_scheduled_time: Option<DateTime<Utc>>,
    /// When a recovery took the run; null without one.
    pub recovery_attempt_time: Option<DateTime<Utc>>,
    /// The scheduled time of the run before this one.
    pub last_scheduled_time: Option<DateTime<Utc>>,
    /// The next five times of the schedule after the start of the attempt, by the version of then.
    pub next_scheduled_times: Vec<DateTime<Utc>>,
}

/// An attempt of a run.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct AttemptView {
    /// Its number, from 1 on.
    pub attempt: i32,
    /// When it started; null: it has not.
    pub started_on: Option<DateTime<Utc>>,
    /// Null: it is being executed.
    pub ended_on: Option<DateTime<Utc>>,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// Why it failed, in a sentence. Do not parse it: read `error_code`.
    pub error: Option<String>,
    /// Null for the error of an action.
    pub error_code: Option<ReasonCode>,
}

/// How an attempt ended. The last one ends as its run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// It is being executed.
    Running,
    /// Its action succeeded.
    Succeeded,
    /// Its action failed; the run was tried again, or failed with it.
    Failed,
    /// It did not end within its timeout.
    TimedOut,
    /// It was stopped on request.
    Cancelled,
    /// Its run was given up.
    Abandoned,
    /// Its instance was lost; the run went on.
    Lost,
    /// Its instance stopped; the run went on.
    HandedOver,
}

/// What started a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A fire of its schedule.
    Schedule,
    /// A manual request.
    Manual,
    /// The catch-up policy.
    CatchUp,
    /// A backfill.
    Backfill,
    /// A manual retry.
    Retry,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Will be executed; a crash loses no accepted run.
    Accepted,
    /// Waits for a slot.
    Queued,
    /// An executor executes it.
    Running,
    /// Final: its action succeeded.
    Succeeded,
    /// Final: its action failed.
    Failed,
    /// Final: it exceeded its timeout.
    TimedOut,
    /// Final: it was cancelled on request.
    Cancelled,
    /// Final: it was abandoned.
    Abandoned,
}
