//! Step 7 of 7: backfills: times of the past that somebody wants run, worked off beside the live schedule.
//!
//! What is meant is read from the schedule versions and the ledger, never from the live cursor, which
//! a backfill does not touch either. Its own cursor moves in the transaction of the runs that it makes.

mod meant;
mod table;
mod work;

use chrono::{DateTime, Utc};
use db::PgConnection;
use serde_json::json;
use uuid::Uuid;

use crate::audit::{self, Edit, Entry};
use crate::runs;
use crate::workflows::Workflow;

use meant::Timetable;

pub use table::{Filter, find, list, pause_running};
pub(crate) use work::refill;
pub use work::work;

/// Times that one backfill may run at most.
pub const MOST: usize = 10_000;

/// Which end of the span comes first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The oldest time first.
    #[default]
    OldestFirst,
    /// The newest time first.
    NewestFirst,
}

/// Whose due times a backfill selects from.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[schema(as = BackfillTiming)]
pub enum Timing {
    /// The schedule versions of then: a paused span has no due times, nor has one before the schedule.
    #[default]
    Then,
    /// The cron and timezone that the schedule has at the request, whatever was in force in the span.
    Now,
}

/// Which of the times owed are meant.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Only {
    /// Those that were missed; under [`Timing::Now`] also those that a pause skipped.
    #[default]
    Missing,
    /// Those whose last run failed, timed out or was abandoned.
    Failed,
    /// All that were owed, whatever became of them.
    All,
}

/// How far a backfill is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[schema(as = BackfillState)]
pub enum State {
    /// It makes runs.
    Running,
    /// It makes none until it is resumed.
    Paused,
    /// Final: somebody gave it up, or its workflow was archived.
    Cancelled,
    /// Final: every run of it has ended.
    Finished,
}

/// What somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The first time that may be meant.
    pub start: DateTime<Utc>,
    /// Every time meant lies before this.
    pub end: DateTime<Utc>,
    /// Which end comes first.
    pub order: Order,
    /// Which times are meant.
    pub only: Only,
    /// Whose due times are selected from.
    pub timing: Timing,
    /// Runs at once.
    pub max_concurrent: i32,
}

/// A backfill.
#[derive(Clone, Debug)]
pub struct Backfill {
    /// Identity.
    pub id: Uuid,
    /// The workflow.
    pub workflow_id: i64,
    /// What was asked for.
    pub wish: Wish,
    /// The schedule version that selects, under [`Timing::Now`].
    pub timing_revision: Option<i64>,
    /// How far it is.
    pub state: State,
    /// The last time that was looked at.
    pub cursor: Option<DateTime<Utc>>,
    /// Times meant, counted when it was asked for.
    pub total: i64,
    /// Runs made so far.
    pub started: i64,
    /// Of these, those that have not ended.
    pub live: i64,
    /// Those that succeeded.
    pub succeeded: i64,
    /// Who asked.
    pub requested_by: String,
    /// When.
    pub created_on: DateTime<Utc>,
    /// When it last went on.
    pub updated_on: DateTime<Utc>,
    /// When it ended.
    pub finished_on: Option<DateTime<Utc>>,
}

/// What became of a wish.
#[derive(Debug)]
pub enum Asked {
    /// It is worked off from now on.
    Begun(Uuid),
    /// So many times would be run; the first of them.
    Counted(usize, Vec<DateTime<Utc>>),
    /// No time is selected.
    Nothing,
    /// More times are meant than one backfill may run.
    TooMany,
    /// Another backfill of the workflow has not ended.
    Another(Uuid),
}

/// What an operator does about a backfill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Make no further runs for now.
    Pause,
    /// Go on.
    Resume,
    /// Give it up, and what it has not started.
    Cancel,
}

/// Says which times a wish means; the workflow is locked.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn count(tx: &mut PgConnection, workflow: &Workflow, wish: &Wish, now: DateTime<Utc>) -> sqlx::Result<Asked> {
    let timetable = Timetable::load(tx, workflow.id, timing_revision(workflow, wish)).await?;
    let times = meant::times(tx, workflow.id, wish, &timetable, now, MOST + 1).await?;
    match times.len() {
        0..=MOST => Ok(Asked::Counted(times.len(), times.into_iter().take(100).collect())),
        _ => Ok(Asked::TooMany),
    }
}

/// The version that selects: the one of the request, so that a later edit does not change a backfill under way.
fn timing_revision(workflow: &Workflow, wish: &Wish) -> Option<i64> {
    match wish.timing {
        Timing::Then => None,
        Timing::Now => Some(workflow.revision.0),
    }
}

/// Begins a backfill; the workflow is locked, and not archived.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn begin(tx: &mut PgConnection, workflow: &Workflow, wish: &Wish, edit: &Edit) -> sqlx::Result<Asked> {
    // Two of one workflow would run the same times twice.
    if let Some(another) = table::unfinished(tx, workflow.id).await? {
        return Ok(Asked::Another(another));
    }
    let total = match count(tx, workflow, wish, edit.now).await? {
        Asked::Counted(0, _) => return Ok(Asked::Nothing),
        Asked::Counted(total, _) => total,
        refused => return Ok(refused),
    };
    let id = crate::id::at(edit.now);
    table::insert(tx, id, workflow.id, wish, timing_revision(workflow, wish), total, edit).await?;
    record(
        tx,
        "backfill",
        id,
        workflow.id.0,
        Some(json!({
            "start": wish.start, "end": wish.end, "only": wish.only, "timing": wish.timing, "total": total,
        })),
        edit,
    )
    .await?;
    Ok(Asked::Begun(id))
}

/// Pauses, resumes or cancels a backfill, whose workflow is locked; whether its state allows it.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn operate(tx: &mut PgConnection, backfill: &Backfill, verb: Verb, edit: &Edit) -> sqlx::Result<bool> {
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
    table::enter(tx, backfill.id, next, edit.now).await?;
    if verb == Verb::Cancel {
        for run in table::not_started(tx, backfill.id).await? {
            runs::cancel(tx, run, edit.now).await?;
        }
    }
    record(tx, word, backfill.id, backfill.workflow_id, None, edit).await?;
    Ok(true)
}

async fn record(
    tx: &mut PgConnection,
    verb: &str,
    id: Uuid,
    workflow_id: i64,
    after: Option<serde_json::Value>,
    edit: &Edit,
) -> sqlx::Result<()> {
    let subject = format!("backfill:{id} of workflow:{workflow_id}");
    audit::record(tx, edit, Entry { verb, subject, before: None, after }).await
}
