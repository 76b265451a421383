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
    sqlx::query_scalar!(
        r#"
        -- cancel live runs: locked in the order of their ids; a run that is being claimed is cancelled like a running
        -- one
        WITH live AS MATERIALIZED (
            SELECT id, state FROM runs_live
             WHERE workflow_id = $1 AND trigger = ANY($2)
             ORDER BY id
               FOR UPDATE
        ), requested AS (
            UPDATE runs_live r
               SET cancel_requested_on = COALESCE(r.cancel_requested_on, $4), cancel_reason = COALESCE(r.cancel_reason, $3)
              FROM live
             WHERE r.id = live.id AND live.state = 'running'
            RETURNING r.id
        ), cancelled AS (
            DELETE FROM runs_live r USING live WHERE r.id = live.id AND live.state <> 'running' RETURNING r AS run
        ), ended AS (
            INSERT INTO runs_ended
            SELECT e.*
              FROM cancelled
             CROSS JOIN LATERAL ended_run(run, 'cancelled', $4, COALESCE((run).cancel_reason, $3), stop_reason => $3) AS e
        )
        SELECT id AS "id!" FROM requested
        "#,
        workflow.0,
        &triggers,
        reason.as_str(),
        now,
    )
    .fetch_all(tx)
    .await
}
