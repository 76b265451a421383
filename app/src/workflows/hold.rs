//! Steps 1 and 7 of 7: a workflow under its lock, as it truly stands at that moment.
//!
//! A pause that is over has ended, whether or not the watchdog has come by: whoever locks the
//! workflow ends it first. So no edit, fire or look of the watchdog can lose what it owes since.

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::WorkflowId;

use super::{State, Workflow, save_since, table};
use crate::audit::Edit;
use crate::clock;
use crate::config::CLOCK_SKEW;

/// One workflow for change; holds its row until the transaction ends.
///
/// What is decided under a lock is read by a later statement than the one that waited for it.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn lock(
    tx: &mut PgConnection,
    id: WorkflowId,
    team_id: Option<i64>,
    now: DateTime<Utc>,
) -> sqlx::Result<Option<Workflow>> {
    table::hold(tx, id).await?;
    as_it_stands(tx, id, team_id, now).await
}

/// As [`lock`], for a fire of `time`, which may come a moment early: at its own time a pause that ends then is over.
///
/// Also reads the database's time, which decides the fire. It is read under the lock, because a request may have
/// waited for its connection and for the lock, and be late by now.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn lock_for_fire(
    tx: &mut PgConnection,
    id: WorkflowId,
    time: DateTime<Utc>,
) -> sqlx::Result<(Option<Workflow>, DateTime<Utc>)> {
    table::hold(tx, id).await?;
    let now = clock::cronbox_now(tx).await?;
    let at = if time > now + CLOCK_SKEW { now } else { now.max(time) };
    Ok((as_it_stands(tx, id, None, at).await?, now))
}

/// As [`lock`], but none if somebody else holds it at this moment, or if there is no such workflow.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn try_lock(tx: &mut PgConnection, id: WorkflowId, now: DateTime<Utc>) -> sqlx::Result<Option<Workflow>> {
    if table::hold_free(tx, id).await? { as_it_stands(tx, id, None, now).await } else { Ok(None) }
}

async fn as_it_stands(
    tx: &mut PgConnection,
    id: WorkflowId,
    team_id: Option<i64>,
    now: DateTime<Utc>,
) -> sqlx::Result<Option<Workflow>> {
    let found = table::find(tx, id, team_id).await?.map(|(workflow, _)| workflow);
    let Some(workflow) = found else { return Ok(None) };
    let Some(over) = workflow.pause_until.filter(|until| *until <= now) else { return Ok(Some(workflow)) };
    let edit = Edit { actor: "cronbox".to_owned(), now, traceparent: None };
    save_since(tx, &workflow, workflow.resumed(), "resume", &edit, Some(over)).await?;
    Ok(table::find(tx, id, team_id).await?.map(|(workflow, _)| workflow))
}

impl Workflow {
    /// What `:resume` makes of it.
    #[must_use]
    pub fn resumed(&self) -> Self {
        Self { state: State::Active, pause_reason: None, pause_until: None, ..self.clone() }
    }
}
