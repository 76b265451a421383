//! Step 7 of 7: cancels runs on request.

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use uuid::Uuid;

use super::{RunState, Trigger};

/// The outcome of a request to cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It runs; its executor stops it at its next heartbeat.
    Requested,
    /// It had not started, and never will start.
    Done,
    /// It has already ended, or it does not exist.
    TooLate,
}

/// Cancels a run: at once if it is not running, else by its executor.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn cancel(tx: &mut PgConnection, id: Uuid, now: DateTime<Utc>) -> sqlx::Result<Cancelled> {
    let state = sqlx::query_scalar!(
        r#"
        -- cancel a run: one statement, so that it cannot start or end between a look and a deed
        UPDATE runs
           SET cancel_requested_on = COALESCE(cancel_requested_on, $2),
               state = CASE WHEN state = 'running' THEN state ELSE 'cancelled' END,
               finished_on = CASE WHEN state = 'running' THEN NULL ELSE $2 END,
               error = CASE WHEN state = 'running' THEN error ELSE 'cancelled on request' END
         WHERE id = $1 AND finished_on IS NULL
        RETURNING state AS "state: RunState"
        "#,
        id,
        now,
    )
    .fetch_optional(tx)
    .await?;
    Ok(match state {
        Some(RunState::Running) => Cancelled::Requested,
        Some(_) => Cancelled::Done,
        None => Cancelled::TooLate,
    })
}

/// Cancels all live runs of a workflow that these triggers started; returns those that an executor must stop first.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn cancel_live(
    tx: &mut PgConnection,
    workflow: WorkflowId,
    triggers: &[Trigger],
    reason: &str,
    now: DateTime<Utc>,
) -> sqlx::Result<Vec<Uuid>> {
    let triggers: Vec<String> = triggers.iter().map(|trigger| trigger.as_str().to_owned()).collect();
    let cancelled = sqlx::query!(
        r#"
        -- cancel live runs: locked in the order of their ids; one that is being claimed is asked like any that runs
        WITH live AS MATERIALIZED (
            SELECT id FROM runs
             WHERE workflow_id = $1 AND trigger = ANY($2) AND state IN ('accepted', 'queued', 'running')
             ORDER BY id
               FOR UPDATE
        )
        UPDATE runs r
           SET cancel_requested_on = COALESCE(r.cancel_requested_on, $4),
               cancel_reason = COALESCE(r.cancel_reason, $3),
               state = CASE WHEN r.state = 'running' THEN r.state ELSE 'cancelled' END,
               finished_on = CASE WHEN r.state = 'running' THEN NULL ELSE $4 END,
               error = CASE WHEN r.state = 'running' THEN r.error ELSE COALESCE(r.cancel_reason, $3) END
          FROM live
         WHERE r.id = live.id AND r.finished_on IS NULL
        RETURNING r.id, r.state = 'running' AS "runs!"
        "#,
        workflow.0,
        &triggers,
        reason,
        now,
    )
    .fetch_all(tx)
    .await?;
    Ok(cancelled.into_iter().filter(|run| run.runs).map(|run| run.id).collect())
}
