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
    /// The run had not started, and never will start.
    Done,
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
        -- cancel a run: one statement, so that it cannot start or end between the check and the change
        UPDATE runs
           SET cancel_requested_on = COALESCE(cancel_requested_on, $2),
               state = CASE WHEN state = 'running' THEN state ELSE 'cancelled' END,
               finished_on = CASE WHEN state = 'running' THEN NULL ELSE $2 END,
               error = CASE WHEN state = 'running' THEN error ELSE 'cancelled_on_request' END
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
