//! Step 7 of 7: backfills: runs for past times on request, beside the live schedule.
//!
//! A backfill selects its times from the schedule versions and the ledger. It neither reads nor changes the live
//! cursor. Its own cursor advances in the transaction that creates its runs.

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

/// How many times one backfill may run at most.
pub const MOST: usize = 10_000;

/// Which end of the span runs first.
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
    /// The schedule versions of the span itself: a paused span has no due times, nor has one before the schedule.
    #[default]
    Then,
    /// The cron and timezone that the schedule has at the request, whatever was in force in the span.
    Now,
}

/// Which of the due times are selected.
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
    /// All due times, whatever was decided about them.
    All,
}

/// The state of a backfill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[schema(as = BackfillState)]
pub enum State {
    /// It creates runs.
    Running,
    /// It creates no runs until it is resumed.
    Paused,
    /// Final: an operator cancelled it, or its workflow was archived.
    Cancelled,
    /// Final: every run of it has ended.
    Finished,
}

/// The request for a backfill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The first time that may be selected.
    pub start: DateTime<Utc>,
    /// Every selected time lies before this.
    pub end: DateTime<Utc>,
    /// Which end of the span runs first.
    pub order: Order,
    /// Which due times are selected.
    pub only: Only,
    /// Where the due times come from.
    pub timing: Timing,
    /// How many of its runs may be active at once.
    pub max_concurrent: i32,
}

/// A backfill.
#[derive(Clone, Debug)]
pub struct Backfill {
    /// The id.
    pub id: Uuid,
    /// The workflow.
    pub workflow_id: i64,
    /// The request.
    pub wish: Wish,
    /// The schedule version that selects, under [`Timing::Now`].
    pub timing_revision: Option<i64>,
    /// The state.
    pub state: State,
    /// The last time that was evaluated.
    pub cursor: Option<DateTime<Utc>>,
    /// How many times were selected when it was requested.
    pub total: i64,
    /// Runs created so far.
    pub started: i64,
    /// Of these, those that have not ended.
    pub live: i64,
    /// Those that succeeded.
    pub succeeded: i64,
    /// The actor that requested it.
    pub requested_by: String,
    /// When it was requested.
    pub created_on: DateTime<Utc>,
    /// When it last advanced.
    pub updated_on: DateTime<Utc>,
    /// When it ended.
    pub finished_on: Option<DateTime<Utc>>,
}

/// The outcome of a request.
#[derive(Debug)]
pub enum Asked {
    /// The backfill was created.
    Begun(Uuid),
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
pub async fn count(tx: &mut PgConnection, workflow: &Workflow, wish: &Wish, now: DateTime<Utc>) -> sqlx::Result<Asked> {
    let timetable = Timetable::load(tx, workflow.id, timing_revision(workflow, wish)).await?;
    let times = meant::times(tx, workflow.id, wish, &timetable, now, MOST + 1).await?;
    match times.len() {
        0..=MOST => Ok(Asked::Counted(times.len(), times.into_iter().take(100).collect())),
        _ => Ok(Asked::TooMany),
    }
}

/// The version that selects is that of the request, so that a later edit does not change a running backfill.
fn timing_revision(workflow: &Workflow, wish: &Wish) -> Option<i64> {
    match wish.timing {
        Timing::Then => None,
        Timing::Now => Some(workflow.revision.0),
    }
}

/// Creates a backfill; the caller has locked the workflow, which is not archived.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn begin(tx: &mut PgConnection, workflow: &Workflow, wish: &Wish, edit: &Edit) -> sqlx::Result<Asked> {
    // Two backfills of one workflow would run the same times twice.
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

/// Pauses, resumes or cancels a backfill whose workflow the caller has locked; returns whether its state allows it.
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
