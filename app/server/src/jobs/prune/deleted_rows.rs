//! Step 7 of 7: removes the runs and the occurrences of deleted workflows, and what no kept time needs any more.

use chrono::{DateTime, Utc};
use db::PgConnection;

use super::old_rows::BATCH;

/// What one batch removed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Removed {
    pub(super) runs: u64,
    pub(super) occurrences: u64,
}

/// Removes a batch of the rows of the workflow that was deleted first, and then its tombstone.
pub(super) async fn remove_of_deleted(db: &mut PgConnection) -> sqlx::Result<Removed> {
    let Some(workflow) = find_deleted(db).await? else { return Ok(Removed::default()) };
    let runs = remove_runs(db, workflow).await?;
    let occurrences = remove_occurrences(db, workflow).await?;
    remove_tombstone(db, workflow).await?;
    Ok(Removed { runs, occurrences })
}

async fn find_deleted(db: &mut PgConnection) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- find_deleted: a workflow that exists was restored, so its rows stay; one with a run that an executor still stops
        -- is not removed before the run has ended
        SELECT d.workflow_id
          FROM deleted_workflows d
         WHERE NOT EXISTS (SELECT FROM workflows w WHERE w.id = d.workflow_id)
           AND NOT EXISTS (SELECT FROM runs r
                            WHERE r.workflow_id = d.workflow_id AND r.state = 'running' AND r.lease_until > cronbox_now())
         ORDER BY d.deleted_on, d.workflow_id
         LIMIT 1
        "#
    )
    .fetch_optional(db)
    .await
}

async fn remove_runs(db: &mut PgConnection, workflow: i64) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove runs of a deleted workflow
        WITH old AS MATERIALIZED (
            SELECT id FROM runs WHERE workflow_id = $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
        ), results AS (
            DELETE FROM run_results x USING old WHERE x.run_id = old.id
        )
        DELETE FROM runs r USING old WHERE r.id = old.id
        "#,
        workflow,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}

async fn remove_occurrences(db: &mut PgConnection, workflow: i64) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove occurrences of a deleted workflow
        WITH old AS MATERIALIZED (
            SELECT workflow_id, scheduled_time FROM occurrences
             WHERE workflow_id = $1
             ORDER BY scheduled_time
             LIMIT $2
               FOR UPDATE SKIP LOCKED
        )
        DELETE FROM occurrences o USING old
         WHERE o.workflow_id = old.workflow_id AND o.scheduled_time = old.scheduled_time
        "#,
        workflow,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}

async fn remove_tombstone(db: &mut PgConnection, workflow: i64) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- remove_tombstone
        DELETE FROM deleted_workflows d
         WHERE d.workflow_id = $1
           AND NOT EXISTS (SELECT FROM runs r WHERE r.workflow_id = d.workflow_id)
           AND NOT EXISTS (SELECT FROM occurrences o WHERE o.workflow_id = d.workflow_id)
        "#,
        workflow,
    )
    .execute(db)
    .await
    .map(drop)
}

/// Removes backfills that ended before the kept runs, and whose runs are removed.
pub(super) async fn remove_backfills(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove_backfills
        WITH old AS MATERIALIZED (
            SELECT b.id FROM backfills b
             WHERE b.finished_on < $1 AND NOT EXISTS (SELECT FROM runs r WHERE r.backfill_id = b.id)
             LIMIT $2
               FOR UPDATE SKIP LOCKED
        )
        DELETE FROM backfills b USING old WHERE b.id = old.id
        "#,
        before,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}

/// Removes the schedule versions of these workflows (`after` < id <= `through`) that ended before all kept times. The one
/// in force at the oldest kept time stays, and so does each that a workflow behind it still needs.
pub(super) async fn remove_versions(
    db: &mut PgConnection,
    after: i64,
    through: i64,
    before: DateTime<Utc>,
) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove_versions
        DELETE FROM schedule_versions v
         USING ledger l, watchdog_shards s
         WHERE v.workflow_id > $1 AND v.workflow_id <= $2
           AND l.workflow_id = v.workflow_id AND s.shard = l.shard
           AND EXISTS (SELECT FROM schedule_versions later
                        WHERE later.workflow_id = v.workflow_id AND later.valid_from > v.valid_from
                          AND later.valid_from <= LEAST($3, ledger_decided_through(l.cursor, l.watch_at, s.decided_through)))
        "#,
        after,
        through,
        before,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}

/// Returns the id of the last workflow of the next batch.
pub(super) async fn find_batch_end(db: &mut PgConnection, after: i64) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- find_batch_end
        SELECT max(workflow_id) FROM (SELECT workflow_id FROM ledger WHERE workflow_id > $1 ORDER BY workflow_id LIMIT $2) AS batch
        "#,
        after,
        BATCH,
    )
    .fetch_one(db)
    .await
}

/// Removes the publications of deleted workflows whose schedules were removed before this time.
///
/// Until then a late request may create such a schedule again, and only the publication permits its removal.
pub(super) async fn remove_publications(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove_publications: only at rest, and without a row of the outbox that is open, failed or discarded, each of which
        -- has a publication
        WITH old AS MATERIALIZED (
            SELECT p.workflow_id FROM publications p
             WHERE p.applied_on < $1 AND p.removal_revision >= p.desired_revision
               AND p.due_at IS NULL AND p.lease_owner IS NULL AND p.verify_at IS NULL
               AND p.schedule_name IS NULL AND p.error_class IS NULL
               AND NOT EXISTS (SELECT FROM workflows w WHERE w.id = p.workflow_id)
               AND NOT EXISTS (SELECT FROM outbox_events o WHERE o.aggregate_id = p.workflow_id AND o.processed_on IS NULL)
               AND NOT EXISTS (SELECT FROM outbox_events o WHERE o.aggregate_id = p.workflow_id AND o.failed_on IS NOT NULL)
             LIMIT $2
               FOR UPDATE OF p SKIP LOCKED
        )
        DELETE FROM publications p USING old WHERE p.workflow_id = old.workflow_id
        "#,
        before,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}
