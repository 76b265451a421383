//! Step 7 of 7: up to when the due times of a workflow are decided.

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::WorkflowId;

/// The progress of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Every due time up to here has its row; `None` if the workflow never had a cron.
    pub cursor: Option<DateTime<Utc>>,
    /// The earliest time that may have to be decided; `None` = no time is due.
    pub watch_at: Option<DateTime<Utc>>,
    /// Since when the schedule is active: no earlier time is caught up.
    pub activated_on: Option<DateTime<Utc>>,
}

/// Reads the progress of a workflow, which the caller has locked.
///
/// # Errors
/// Fails if the database refuses the statement, or if the workflow does not exist.
pub async fn read_cursor(tx: &mut PgConnection, workflow: WorkflowId) -> sqlx::Result<Ledger> {
    sqlx::query_as!(
        Ledger,
        r#"
        -- read how far the ledger is
        SELECT ledger_cursor AS cursor, watch_at, schedule_activated_at AS activated_on FROM workflows WHERE id = $1
        "#,
        workflow.0,
    )
    .fetch_one(tx)
    .await
}

/// Advances the cursor, in the transaction that writes the decisions.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn advance_cursor(
    tx: &mut PgConnection,
    workflow: WorkflowId,
    cursor: DateTime<Utc>,
    watch_at: Option<DateTime<Utc>>,
) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- settle the ledger: it never goes back
        UPDATE workflows SET ledger_cursor = GREATEST(ledger_cursor, $2), watch_at = $3 WHERE id = $1
        "#,
        workflow.0,
        cursor,
        watch_at,
    )
    .execute(tx)
    .await
    .map(drop)
}
