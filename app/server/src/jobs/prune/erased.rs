//! Step 7 of 7: removes the runs and occurrences of workflows that were hard-deleted.
//!
//! The deletion removes the live runs and leaves a row in `erased_workflows`; no new row of such a workflow can appear,
//! because a fire locks its workflow.

use db::PgConnection;

use super::old_rows::BATCH;

/// Removes a batch of runs of deleted workflows; returns how many.
pub(super) async fn remove_runs(db: &mut PgConnection) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove the runs of deleted workflows; LATERAL with LIMIT, because a join could read the complete history
        WITH erased AS MATERIALIZED (
            SELECT r.id
              FROM erased_workflows e
             CROSS JOIN LATERAL (SELECT id FROM runs_ended WHERE workflow_id = e.workflow_id LIMIT $1) AS r
                   -- an operator may have put the workflow back
             WHERE NOT EXISTS (SELECT FROM workflows w WHERE w.id = e.workflow_id)
             LIMIT $1
        ), results AS (
            DELETE FROM run_results x USING erased WHERE x.run_id = erased.id
        )
        DELETE FROM runs_ended r USING erased WHERE r.id = erased.id
        "#,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}

/// Removes a batch of occurrences of deleted workflows; returns how many.
pub(super) async fn remove_occurrences(db: &mut PgConnection) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove the occurrences of deleted workflows; LATERAL with LIMIT, because a join could read all of them
        WITH erased AS MATERIALIZED (
            SELECT o.workflow_id, o.scheduled_time
              FROM erased_workflows e
             CROSS JOIN LATERAL (SELECT workflow_id, scheduled_time FROM occurrences
                                  WHERE workflow_id = e.workflow_id
                                  LIMIT $1) AS o
             WHERE NOT EXISTS (SELECT FROM workflows w WHERE w.id = e.workflow_id)
             LIMIT $1
        )
        DELETE FROM occurrences o USING erased
         WHERE o.workflow_id = erased.workflow_id AND o.scheduled_time = erased.scheduled_time
        "#,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}

/// Forgets the deleted workflows of which nothing is left, or that were put back.
pub(super) async fn forget_workflows(db: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- forget deleted workflows of which nothing is left, or that were put back
        DELETE FROM erased_workflows e
         WHERE EXISTS (SELECT FROM workflows w WHERE w.id = e.workflow_id)
            OR NOT EXISTS (SELECT FROM runs_ended r WHERE r.workflow_id = e.workflow_id)
               AND NOT EXISTS (SELECT FROM occurrences o WHERE o.workflow_id = e.workflow_id)
        "#
    )
    .execute(db)
    .await
    .map(drop)
}
