//! V0: the edit commits first, and then notifies the publisher, as in a naive design.

use db::{PgConnection, PgPool};
use schedule::WorkflowId;

/// Removes the edit's outbox rows, so that `emit` can insert them later.
pub(crate) async fn withhold(tx: &mut PgConnection, workflow: WorkflowId) -> sqlx::Result<Vec<(i64, String)>> {
    sqlx::query_as(
        "DELETE FROM outbox_events WHERE aggregate_id = $1 AND processed_on IS NULL AND xmin = pg_current_xact_id()::xid
         RETURNING aggregate_id, op",
    )
    .bind(workflow.0)
    .fetch_all(tx)
    .await
}

/// Inserts the rows. If the editor dies before, they are lost.
pub(crate) async fn emit(pool: &PgPool, withheld: Vec<(i64, String)>) -> sqlx::Result<()> {
    for (workflow, op) in withheld {
        sqlx::query("INSERT INTO outbox_events (aggregate_id, op, created_on) VALUES ($1, $2, cronbox_now())")
            .bind(workflow)
            .bind(op)
            .execute(pool)
            .await?;
    }
    Ok(())
}
