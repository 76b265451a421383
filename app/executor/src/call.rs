//! Step 7 of 7: what a run passes to its action.

use chrono::{DateTime, Utc};
use ledger::runs::Trigger;
use schedule::WorkflowId;
use workflows::definition::secret_inputs::{OtherOrigin, release_for_action};
use workflows::definition::spec::Timing;

use crate::actions::{Call, Context};
use crate::claim::Claimed;

/// Returns the call of this attempt.
///
/// # Errors
/// Refuses marked inputs that were sent for another origin than the URL of the action has now.
pub(super) fn build_call(run: &Claimed, now: DateTime<Utc>) -> Result<Call, OtherOrigin> {
    let is_recovery = run.recoveries > 0 || run.cut_off > 0;
    Ok(Call {
        run_id: run.id,
        workflow_id: WorkflowId(run.workflow_id),
        trigger: run.trigger.as_str().to_owned(),
        scheduled_time: run.scheduled_time,
        attempt: run.attempt,
        inputs: release_for_action(&run.inputs, &run.action)?,
        context: Context {
            is_catch_up: run.trigger == Trigger::CatchUp,
            is_recovery,
            lateness_s: run.scheduled_time.map_or(0, |time| (now - time).num_seconds()),
            original_scheduled_time: run.scheduled_time,
            recovery_attempt_time: is_recovery.then_some(now),
            last_scheduled_time: run.last_scheduled_time,
            next_scheduled_times: next_times(run, now),
        },
    })
}

fn next_times(run: &Claimed, now: DateTime<Utc>) -> Vec<DateTime<Utc>> {
    let timing = Timing {
        cron: run.cron_schedule.clone(),
        timezone: run.timezone.clone(),
        starts_at: None,
        ends_at: run.ends_at,
    };
    let Some((cron, timezone)) = timing.parsed_now() else { return Vec::new() };
    cron.times_after(now, timezone).take_while(|time| timing.is_before_end(*time)).take(5).collect()
}
