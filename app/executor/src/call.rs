//! Step 7 of 7: what a run passes to its action.

use chrono::{DateTime, Utc};
use schedule::WorkflowId;
use serde_json::Value;
use workflows::definition::secret_inputs::{OtherOrigin, release_for_action};
use workflows::definition::spec::Timing;

use crate::actions::Call;
use crate::claim::Claimed;
use crate::context::{Facts, build_context};

/// Returns the call of this attempt, with its action and its inputs.
///
/// # Errors
/// Refuses marked inputs that were sent for another origin than the URL of the action has now.
pub(super) fn build_call(
    run: &Claimed,
    action: &Value,
    inputs: &Value,
    now: DateTime<Utc>,
) -> Result<Call, OtherOrigin> {
    let facts = Facts {
        trigger: run.trigger,
        scheduled_time: run.scheduled_time,
        is_recovery: run.recoveries > 0 || run.cut_off > 0,
        last_scheduled_time: run.last_scheduled_time,
        timing: Timing {
            cron: run.cron_schedule.clone(),
            timezone: run.timezone.clone(),
            starts_at: None,
            ends_at: run.ends_at,
        },
    };
    Ok(Call {
        run_id: run.id,
        workflow_id: WorkflowId(run.workflow_id),
        trigger: run.trigger.as_str().to_owned(),
        scheduled_time: run.scheduled_time,
        attempt: run.attempt,
        inputs: release_for_action(inputs, action)?,
        context: build_context(&facts, now),
    })
}
