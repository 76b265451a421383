//! Steps 1 and 7 of 7: ends the runs of a workflow that have not ended, in the transaction that decides it.

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use uuid::Uuid;

use crate::reasons::ReasonCode;
use crate::trigger::Trigger;

/// Cancels all live runs of a workflow that these triggers started; returns those that an executor must stop first.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn cancel_live_runs(
    tx: &mut PgConnection,
    workflow: WorkflowId,
    triggers: &[Trigger],
    reason: ReasonCode,
    now: DateTime<Utc>,
) -> sqlx::Result<Vec<Uuid>> {
    let triggers: Vec<String> = triggers.iter().map(|trigger| trigger.as_str().to_owned()).collect();
    let cancelled = sqlx::query!(
        r#"
        -- cancel live runs: locked in the order of their ids; a run that is being claimed is cancelled like a running
        -- one
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
        reason.as_str(),
        now,
    )
    .fetch_all(tx)
    .await?;
    Ok(cancelled.into_iter().filter(|run| run.runs).map(|run| run.id).collect())
}
