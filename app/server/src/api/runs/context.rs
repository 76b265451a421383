//! Step 7 of 7: the context of the last attempt of a run, made of the same facts by the same function as for the action.

use api_types::runs::RunContextView;
use db::PgConnection;
use executor::actions::Context;
use executor::context::{Facts, build_context};
use ledger::runs::{self, Run, RunDetail};
use ledger::versions;
use schedule::WorkflowId;
use workflows::definition::spec::Timing;

use crate::api::request::error::Error;

/// The context of the last attempt; `None`: none has started.
pub(super) async fn read_context(
    tx: &mut PgConnection,
    run: &Run,
    detail: &RunDetail,
) -> Result<Option<RunContextView>, Error> {
    let Some(started) = run.started_on else { return Ok(None) };
    let version = versions::find_in_force(tx, WorkflowId(run.workflow_id), started).await?;
    let timing = version.map(|version| Timing { starts_at: None, ..version.timing }).unwrap_or_default();
    let before = run.scheduled_time.unwrap_or(started);
    let facts = Facts {
        trigger: run.trigger,
        scheduled_time: run.scheduled_time,
        is_recovery: detail.recoveries > 0 || detail.cut_off > 0,
        last_scheduled_time: runs::find_last_scheduled_time(tx, run.workflow_id, before).await?,
        timing,
    };
    Ok(Some(view_context(build_context(&facts, started))))
}

fn view_context(context: Context) -> RunContextView {
    RunContextView {
        is_catch_up: context.is_catch_up,
        is_recovery: context.is_recovery,
        lateness_s: context.lateness_s,
        original_scheduled_time: context.original_scheduled_time,
        recovery_attempt_time: context.recovery_attempt_time,
        last_scheduled_time: context.last_scheduled_time,
        next_scheduled_times: context.next_scheduled_times,
    }
}
