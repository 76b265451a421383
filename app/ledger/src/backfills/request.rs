//! Step 7 of 7: the requests about backfills: count, create, pause, resume or cancel one.

use chrono::{DateTime, Utc};
use db::PgConnection;
use serde_json::json;
use uuid::Uuid;
use workflows::Workflow;
use workflows::audit::{self, Edit, Entry};

use super::select::{self, Timetable};
use super::{Backfill, BackfillRequest, State, Timing, table};
use crate::runs::cancel_run;

/// How many times one backfill may run at most.
pub const MOST: usize = 10_000;

/// The outcome of a request.
#[derive(Debug)]
pub enum BackfillOutcome {
    /// The backfill was created.
    Created(Uuid),
    /// A dry run: the number of times that would run, and the first of them.
    Counted(usize, Vec<DateTime<Utc>>),
    /// No time is selected.
    Nothing,
    /// More times are selected than one backfill may run.
    TooMany,
    /// Another backfill of the workflow has not ended.
    Another(Uuid),
}

/// An operator's change of a backfill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Create no further runs for now.
    Pause,
    /// Continue.
    Resume,
    /// Cancel it, and its runs that have not started.
    Cancel,
}

/// Counts the times that a request selects; the caller has locked the workflow.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn count_selected_times(
    tx: &mut PgConnection,
    workflow: &Workflow,
    request: &BackfillRequest,
    now: DateTime<Utc>,
) -> sqlx::Result<BackfillOutcome> {
    let timetable = Timetable::load_version(tx, workflow.id, timing_revision(workflow, request)).await?;
    let times = select::list_times(tx, workflow.id, request, &timetable, now, MOST + 1).await?;
    match times.len() {
        0..=MOST => Ok(BackfillOutcome::Counted(times.len(), times.into_iter().take(100).collect())),
        _ => Ok(BackfillOutcome::TooMany),
    }
}

/// The version that selects is that of the request, so that a later edit does not change a running backfill.
fn timing_revision(workflow: &Workflow, request: &BackfillRequest) -> Option<i64> {
    match request.timing {
        Timing::Then => None,
        Timing::Now => Some(workflow.revision.0),
    }
}

/// Creates a backfill; the caller has locked the workflow, which is not archived.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn create_backfill(
    tx: &mut PgConnection,
    workflow: &Workflow,
    request: &BackfillRequest,
    edit: &Edit,
) -> sqlx::Result<BackfillOutcome> {
    // Two backfills of one workflow would run the same times twice.
    if let Some(another) = table::find_unfinished(tx, workflow.id).await? {
        return Ok(BackfillOutcome::Another(another));
    }
    let total = match count_selected_times(tx, workflow, request, edit.now).await? {
        BackfillOutcome::Counted(0, _) => return Ok(BackfillOutcome::Nothing),
        BackfillOutcome::Counted(total, _) => total,
        refused => return Ok(refused),
    };
    let id = workflows::id::make_id(edit.now);
    table::insert_backfill(tx, id, workflow.id, request, timing_revision(workflow, request), total, edit).await?;
    let after = json!({
        "start": request.start, "end": request.end, "only": request.only, "timing": request.timing, "total": total,
    });
    record(tx, "backfill", id, workflow, Some(after), edit).await?;
    Ok(BackfillOutcome::Created(id))
}

/// Pauses, resumes or cancels a backfill of a workflow that the caller has locked; returns whether its state allows it.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn apply_verb(
    tx: &mut PgConnection,
    workflow: &Workflow,
    backfill: &Backfill,
    verb: Verb,
    edit: &Edit,
) -> sqlx::Result<bool> {
    let (word, next) = match verb {
        Verb::Pause => ("pause", State::Paused),
        Verb::Resume => ("resume", State::Running),
        Verb::Cancel => ("cancel", State::Cancelled),
    };
    match backfill.state {
        state if state == next => return Ok(true),
        State::Cancelled | State::Finished => return Ok(false),
        State::Running | State::Paused => {}
    }
    table::enter_state(tx, backfill.id, next, edit.now).await?;
    if verb == Verb::Cancel {
        for run in table::list_unstarted_runs(tx, backfill.id).await? {
            cancel_run(tx, run, edit.now).await?;
        }
    }
    record(tx, word, backfill.id, workflow, None, edit).await?;
    Ok(true)
}

async fn record(
    tx: &mut PgConnection,
    verb: &str,
    id: Uuid,
    workflow: &Workflow,
    after: Option<serde_json::Value>,
    edit: &Edit,
) -> sqlx::Result<()> {
    let subject = format!("backfill:{id} of workflow:{}", workflow.id);
    let team_id = Some(workflow.team_id);
    audit::record_entry(tx, edit, Entry { verb, subject, team_id, before: None, after }).await
}
