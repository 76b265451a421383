//! Steps 1 and 7 of 7: locks a workflow, and returns its current state.
//!
//! A pause that is over may not be ended by the watchdog yet, so the lock ends it first. Then no edit, fire or pass of
//! the watchdog can lose a time that was due since.

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use schedule::WorkflowId;

use super::edit::save_since;
use super::{State, Workflow, read};
use crate::audit::Edit;

/// A fire further in the future than this means that a clock is wrong.
pub const CLOCK_SKEW: TimeDelta = TimeDelta::minutes(5);

/// Locks one workflow until the transaction ends, and returns it.
///
/// A later statement than the one that waited for the lock reads it, so that the caller sees the newest row.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn lock(
    tx: &mut PgConnection,
    id: WorkflowId,
    team_id: Option<i64>,
    now: DateTime<Utc>,
) -> sqlx::Result<Option<Workflow>> {
    read::lock_row(tx, id).await?;
    read_locked(tx, id, team_id, now).await
}

/// Locks one workflow until the transaction ends, if it exists. A later statement reads it.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn lock_row(tx: &mut PgConnection, id: WorkflowId) -> sqlx::Result<()> {
    read::lock_row(tx, id).await
}

/// Returns a locked workflow for a fire of `time`, which may arrive a moment early: a pause that ends at this time is
/// over then.
///
/// `now` was read under the lock, because a request may have waited for its connection and for the lock, and may be late
/// by now.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_locked_for_fire(
    tx: &mut PgConnection,
    id: WorkflowId,
    time: DateTime<Utc>,
    now: DateTime<Utc>,
) -> sqlx::Result<Option<Workflow>> {
    let at = if time > now + CLOCK_SKEW { now } else { now.max(time) };
    read_locked(tx, id, None, at).await
}

/// As [`lock`], but returns `None` if another transaction has locked the workflow, or if it does not exist.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn try_lock(tx: &mut PgConnection, id: WorkflowId, now: DateTime<Utc>) -> sqlx::Result<Option<Workflow>> {
    if read::try_lock_row(tx, id).await? { read_locked(tx, id, None, now).await } else { Ok(None) }
}

async fn read_locked(
    tx: &mut PgConnection,
    id: WorkflowId,
    team_id: Option<i64>,
    now: DateTime<Utc>,
) -> sqlx::Result<Option<Workflow>> {
    let found = read::find(tx, id, team_id).await?.map(|(workflow, _)| workflow);
    let Some(workflow) = found else { return Ok(None) };
    let Some(over) = workflow.pause_until.filter(|until| *until <= now) else { return Ok(Some(workflow)) };
    let edit = Edit { actor: "cronbox".to_owned(), now, traceparent: None };
    save_since(tx, &workflow, workflow.resumed(), "resume", &edit, Some(over)).await?;
    Ok(read::find(tx, id, team_id).await?.map(|(workflow, _)| workflow))
}

impl Workflow {
    /// Returns the workflow after a resume.
    #[must_use]
    pub fn resumed(&self) -> Self {
        Self { state: State::Active, pause_reason: None, pause_until: None, ..self.clone() }
    }
}
