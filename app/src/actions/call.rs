//! Step 7 of 7: what a run hands to its action.

use chrono::{DateTime, Utc};
use schedule::WorkflowId;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

/// What a run hands to its action.
#[derive(Clone, Debug, Serialize)]
pub struct Call {
    /// The run; a receiver deduplicates by it.
    pub run_id: Uuid,
    /// Its workflow.
    pub workflow_id: WorkflowId,
    /// What started it.
    pub trigger: String,
    /// The nominal time, none for a run by hand.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// 1 at the first attempt.
    pub attempt: i32,
    /// The workflow's starting inputs, or those of this run alone.
    pub inputs: Value,
    /// Why and how late this run happens.
    pub context: Context,
}

/// Why and how late a run happens.
#[derive(Clone, Debug, Serialize)]
pub struct Context {
    /// Run for a time that was missed.
    pub is_catch_up: bool,
    /// Continued after its instance was lost or ended: the receiver may have seen an earlier attempt.
    pub is_recovery: bool,
    /// Seconds from the nominal time to the start of this attempt.
    pub lateness_s: i64,
    /// The time that the schedule owed.
    pub original_scheduled_time: Option<DateTime<Utc>>,
    /// When a recovery picked the run up, none without one.
    pub recovery_attempt_time: Option<DateTime<Utc>>,
    /// The nominal time of the run before this one.
    pub last_scheduled_time: Option<DateTime<Utc>>,
    /// The next five times of the schedule.
    pub next_scheduled_times: Vec<DateTime<Utc>>,
}

/// The call as JSON; it holds nothing that JSON cannot say.
pub(super) fn document(call: &Call) -> Value {
    serde_json::to_value(call).unwrap_or_else(|error| json!({ "error": error.to_string() }))
}
