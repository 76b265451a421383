//! Step 7 of 7: what a run passes to its action.

use chrono::{DateTime, Utc};
use schedule::WorkflowId;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

/// What a run passes to its action.
#[derive(Clone, Debug, Serialize)]
pub struct Call {
    /// The run; a receiver deduplicates by it.
    pub run_id: Uuid,
    /// The workflow of the run.
    pub workflow_id: WorkflowId,
    /// What started the run.
    pub trigger: String,
    /// The scheduled time; `None` for a manual run.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// 1 at the first attempt.
    pub attempt: i32,
    /// The workflow's starting inputs, or the inputs of this run only.
    pub inputs: Value,
    /// Why and how late this run happens.
    pub context: Context,
}

/// Why and how late a run happens.
#[derive(Clone, Debug, Serialize)]
pub struct Context {
    /// The run replaces a time that was missed.
    pub is_catch_up: bool,
    /// The run continues after its instance was lost or ended: the receiver may have seen an earlier attempt.
    pub is_recovery: bool,
    /// Seconds from the nominal time to the start of this attempt.
    pub lateness_s: i64,
    /// The due time of the schedule.
    pub original_scheduled_time: Option<DateTime<Utc>>,
    /// When a recovery took the run; `None` without one.
    pub recovery_attempt_time: Option<DateTime<Utc>>,
    /// The nominal time of the run before this one.
    pub last_scheduled_time: Option<DateTime<Utc>>,
    /// The next five times of the schedule.
    pub next_scheduled_times: Vec<DateTime<Utc>>,
}
