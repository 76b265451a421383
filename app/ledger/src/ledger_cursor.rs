//! Step 7 of 7: up to when the due times of a workflow are decided.
//!
//! A workflow either has a `watch_at` and a cursor of its own, or it follows its shard: then it is decided as far as the
//! shard is, and a pass of the watchdog in which nothing happens writes nothing for it.

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::WorkflowId;

/// The progress of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Every due time up to here has its row.
    pub cursor: DateTime<Utc>,
    /// The earliest time that may have to be decided for this workflow only; `None` = it follows its shard.
    pub watch_at: Option<DateTime<Utc>>,
    /// Since when the schedule is active: no earlier time is caught up.
    pub activated_on: Option<DateTime<Utc>>,
}

/// Reads the progress of a workflow, which the caller has locked; `None` if it never had a cron.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_cursor(tx: &mut PgConnection, workflow: WorkflowId) -> sqlx::Result<Option<Ledger>> {
    sqlx::query_as!(
        Ledger,
        r#"
        -- read how far the ledger is
        SELECT ledger_decided_through(l.cursor, l.watch_at, s.decided_through) AS "cursor!", l.watch_at, l.activated_on
          FROM ledger l JOIN watchdog_shards s ON s.shard = l.shard
         WHERE l.workflow_id = $1
        "#,
        workflow.0,
    )
    .fetch_optional(tx)
    .await
}

/// Advances the cursor, in the transaction that writes the decisions. The workflow does not follow its shard until a
/// pass of the watchdog finds it settled.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn advance_cursor(
    tx: &mut PgConnection,
    workflow: WorkflowId,
    cursor: DateTime<Utc>,
    watch_at: DateTime<Utc>,
) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- settle the ledger: it never goes back
        UPDATE ledger SET cursor = GREATEST(cursor, $2), watch_at = $3 WHERE workflow_id = $1
        "#,
        workflow.0,
        cursor,
        watch_at,
    )
    .execute(tx)
    .await
    .map(drop)
}
