//! Step 7 of 7: what a run passes to its action.

use chrono::{DateTime, Utc};
use schedule::{Cron, WorkflowId};

use crate::actions::{Call, Context};
use crate::runs::{Claimed, Trigger};

/// Returns the call of this attempt.
pub(super) fn of(run: &Claimed, now: DateTime<Utc>) -> Call {
    let is_recovery = run.recoveries > 0 || run.cut_off > 0;
    Call {
        run_id: run.id,
        workflow_id: WorkflowId(run.workflow_id),
        trigger: run.trigger.as_str().to_owned(),
        scheduled_time: run.scheduled_time,
        attempt: run.attempt,
        inputs: run.inputs.clone(),
        context: Context {
            is_catch_up: run.trigger == Trigger::CatchUp,
            is_recovery,
            lateness_s: run.scheduled_time.map_or(0, |time| (now - time).num_seconds()),
            original_scheduled_time: run.scheduled_time,
            recovery_attempt_time: is_recovery.then_some(now),
            last_scheduled_time: run.last_scheduled_time,
            next_scheduled_times: next_times(run, now),
        },
    }
}

fn next_times(run: &Claimed, now: DateTime<Utc>) -> Vec<DateTime<Utc>> {
    let timezone = schedule::parse_timezone(run.timezone.as_deref().unwrap_or("UTC"));
    let cron = run.cron_schedule.as_deref().map(Cron::parse);
    match (cron, timezone) {
        (Some(Ok(cron)), Ok(timezone)) => {
            std::iter::successors(cron.next_after(now, timezone), |last| cron.next_after(*last, timezone))
                .take_while(|time| run.ends_at.is_none_or(|end| *time < end))
                .take(5)
                .collect()
        }
        _ => Vec::new(),
    }
}
