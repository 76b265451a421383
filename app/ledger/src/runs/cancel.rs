//! Step 7 of 7: cancels runs on request.

use chrono::{DateTime, Utc};
use db::PgConnection;
use uuid::Uuid;

use super::RunState;

/// The outcome of a request to cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// The run is in progress; its executor stops it at its next heartbeat.
    Requested,
    /// The run had a slot, had not started, and never will start: a run that waits may get the slot.
    FreedSlot,
    /// The run waited for a slot, and never will start.
    LeftQueue,
    /// The run has already ended, or does not exist.
    TooLate,
}

/// Cancels a run: at once if it is not running, else by its executor.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn cancel_run(tx: &mut PgConnection, id: Uuid, now: DateTime<Utc>) -> sqlx::Result<Cancelled> {
    let state = sqlx::query_scalar!(
        r#"
        -- cancel a run: locked first, so that it cannot start or end between the check and the change
        WITH locked AS MATERIALIZED (
            SELECT id, state FROM runs_live WHERE id = $1 FOR UPDATE
        ), requested AS (
            UPDATE runs_live r
               SET cancel_requested_on = COALESCE(r.cancel_requested_on, $2)
              FROM locked
             WHERE r.id = locked.id AND locked.state = 'running'
        ), cancelled AS (
            DELETE FROM runs_live r USING locked WHERE r.id = locked.id AND locked.state <> 'running' RETURNING r AS run
        ), ended AS (
            INSERT INTO runs_ended
            SELECT e.* FROM cancelled CROSS JOIN LATERAL ended_run(run, 'cancelled', $2, 'cancelled_on_request') AS e
        )
        SELECT state AS "state!: RunState" FROM locked
        "#,
        id,
        now,
    )
    .fetch_optional(tx)
    .await?;
    Ok(match state {
        Some(RunState::Running) => Cancelled::Requested,
        Some(RunState::Queued) => Cancelled::LeftQueue,
        Some(_) => Cancelled::FreedSlot,
        None => Cancelled::TooLate,
    })
}
