//! Step 7 of 7: removes the runs and the occurrences of deleted workflows, and what no kept time needs any more.

use chrono::{DateTime, Utc};
use db::PgConnection;

use super::old_rows::BATCH;

/// How many deleted workflows one statement processes.
const TOMBSTONES: i64 = 100;
/// How many schedule versions one statement removes: they are small, and one index has them.
pub(super) const VERSIONS: i64 = 10_000;
/// How many publications one statement checks: most belong to workflows that exist, and stay.
const PUBLICATIONS: i64 = 10_000;

/// What one batch removed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Removed {
    pub(super) runs: u64,
    pub(super) occurrences: u64,
    pub(super) tombstones: u64,
    /// Whether there may be further deleted workflows, or further rows of these.
    pub(super) may_be_more: bool,
}

/// Removes a batch of the rows of the next deleted workflows, and at last their tombstones. `after` is the last one of
/// those that are done, so a turn checks each tombstone once.
pub(super) async fn remove_of_deleted(db: &mut PgConnection, after: &mut i64) -> sqlx::Result<Removed> {
    let found = find_deleted(db, *after).await?;
    let Some(last) = found.last() else { return Ok(Removed::default()) };
    let removable: Vec<i64> = found.iter().filter(|one| one.is_removable).map(|one| one.workflow_id).collect();
    let runs = remove_runs(db, &removable).await?;
    let occurrences = remove_occurrences(db, &removable).await?;
    let mut tombstones = 0;
    if runs.max(occurrences) < BATCH.unsigned_abs() {
        let all: Vec<i64> = found.iter().map(|one| one.workflow_id).collect();
        tombstones = remove_tombstones(db, &all).await?;
        *after = last.workflow_id;
    }
    Ok(Removed { runs, occurrences, tombstones, may_be_more: true })
}

struct Deleted {
    workflow_id: i64,
    is_removable: bool,
}

async fn find_deleted(db: &mut PgConnection, after: i64) -> sqlx::Result<Vec<Deleted>> {
    sqlx::query_as!(
        Deleted,
        r#"
        -- find_deleted: a workflow that exists was put back, so its rows stay; those of one with a run that an executor
        -- still stops are not removed before the run has ended
        SELECT d.workflow_id,
               (SELECT TRUE FROM workflows w WHERE w.id = d.workflow_id) IS NULL
               AND (SELECT TRUE FROM runs r
                     WHERE r.workflow_id = d.workflow_id AND r.state = 'running' AND r.lease_until > cronbox_now()
                     LIMIT 1) IS NULL AS "is_removable!"
          FROM deleted_workflows d
         WHERE d.workflow_id > $1
         ORDER BY d.workflow_id
         LIMIT $2
        "#,
        after,
        TOMBSTONES,
    )
    .fetch_all(db)
    .await
}

async fn remove_runs(db: &mut PgConnection, workflows: &[i64]) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove runs of deleted workflows: LATERAL, so that each is read by its index, whatever their share of the runs is
        WITH old AS MATERIALIZED (
            SELECT r.id
              FROM unnest($1::bigint[]) AS d (workflow_id)
             CROSS JOIN LATERAL (SELECT id FROM runs
                                  WHERE workflow_id = d.workflow_id
                                  LIMIT $2
                                    FOR UPDATE SKIP LOCKED) AS r
             LIMIT $2
        ), results AS (
            DELETE FROM run_results x USING old WHERE x.run_id = old.id
        ), attempts AS (
            DELETE FROM run_attempts x USING old WHERE x.run_id = old.id
        )
        DELETE FROM runs r USING old WHERE r.id = old.id
        "#,
        workflows,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}

async fn remove_occurrences(db: &mut PgConnection, workflows: &[i64]) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove occurrences of deleted workflows, as their runs
        WITH old AS MATERIALIZED (
            SELECT d.workflow_id, o.scheduled_time
              FROM unnest($1::bigint[]) AS d (workflow_id)
             CROSS JOIN LATERAL (SELECT scheduled_time FROM occurrences
                                  WHERE workflow_id = d.workflow_id
                                  LIMIT $2
                                    FOR UPDATE SKIP LOCKED) AS o
             LIMIT $2
        )
        DELETE FROM occurrences o USING old
         WHERE o.workflow_id = old.workflow_id AND o.scheduled_time = old.scheduled_time
        "#,
        workflows,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}

async fn remove_tombstones(db: &mut PgConnection, workflows: &[i64]) -> sqlx::Result<u64> {
    let removed = sqlx::query_scalar!(
        r#"
        -- remove_tombstones: of workflows without rows, and of those that were put back, whose runs are listed again.
        -- Subqueries of one row, because joins could read all runs. The highest id stays known, because the publisher
        -- takes a schedule with a higher one for the sign of a restore
        WITH removed AS (
            DELETE FROM deleted_workflows d
             WHERE d.workflow_id = ANY($1)
               AND ((SELECT TRUE FROM workflows w WHERE w.id = d.workflow_id) IS NOT NULL
                    OR (SELECT TRUE FROM runs r WHERE r.workflow_id = d.workflow_id LIMIT 1) IS NULL
                       AND (SELECT TRUE FROM occurrences o WHERE o.workflow_id = d.workflow_id LIMIT 1) IS NULL)
            RETURNING d.workflow_id
        ), known AS (
            UPDATE database_identity
               SET pruned_workflow_id = (SELECT max(workflow_id) FROM removed)
             WHERE pruned_workflow_id < (SELECT max(workflow_id) FROM removed)
        )
        SELECT count(*) AS "removed!" FROM removed
        "#,
        workflows,
    )
    .fetch_one(db)
    .await?;
    Ok(removed.unsigned_abs())
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

/// Removes a batch of the schedule versions of these workflows (`after` < id <= `through`) that ended before all kept times.
/// The one in force at the oldest kept time stays, and so does each that a workflow behind it still needs.
pub(super) async fn remove_versions(
    db: &mut PgConnection,
    after: i64,
    through: i64,
    before: DateTime<Utc>,
) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove_versions: those before the one in force at the oldest needed time of their workflow. One step in the index
        -- finds that one, so no version that stays is read, however many there are. By ctid, because Postgres could read
        -- the table for a join
        WITH old AS MATERIALIZED (
            SELECT v.place
              FROM ledger l
              JOIN watchdog_shards s ON s.shard = l.shard
             CROSS JOIN LATERAL (SELECT max(valid_from) AS needed_from
                                   FROM schedule_versions
                                  WHERE workflow_id = l.workflow_id
                                    AND valid_from <= LEAST($3, ledger_decided_through(l.cursor, l.watch_at, s.decided_through))) AS kept
             CROSS JOIN LATERAL (SELECT ctid AS place
                                   FROM schedule_versions
                                  WHERE workflow_id = l.workflow_id AND valid_from < kept.needed_from
                                  ORDER BY valid_from
                                  LIMIT $4) AS v
             WHERE l.workflow_id > $1 AND l.workflow_id <= $2
             LIMIT $4
        )
        DELETE FROM schedule_versions v WHERE v.ctid = ANY(ARRAY(SELECT place FROM old))
        "#,
        after,
        through,
        before,
        VERSIONS,
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

/// Removes the publications of deleted workflows whose schedules were removed before this time, of these workflows
/// (`after` < id <= `through`).
///
/// Until then a late request may create such a schedule again, and only the publication permits its removal.
pub(super) async fn remove_publications(
    db: &mut PgConnection,
    after: i64,
    through: i64,
    before: DateTime<Utc>,
) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove_publications: only at rest, and without a row of the outbox that is open, failed or discarded, each of which
        -- has a publication
        WITH old AS MATERIALIZED (
            SELECT p.workflow_id FROM publications p
             WHERE p.workflow_id > $1 AND p.workflow_id <= $2
               AND p.applied_on < $3 AND p.removal_revision >= p.desired_revision
               AND p.due_at IS NULL AND p.lease_owner IS NULL AND p.verify_at IS NULL
               AND p.schedule_name IS NULL AND p.error_class IS NULL
               AND NOT EXISTS (SELECT FROM workflows w WHERE w.id = p.workflow_id)
               AND NOT EXISTS (SELECT FROM outbox_events o WHERE o.aggregate_id = p.workflow_id AND o.processed_on IS NULL)
               AND NOT EXISTS (SELECT FROM outbox_events o WHERE o.aggregate_id = p.workflow_id AND o.failed_on IS NOT NULL)
               FOR UPDATE OF p SKIP LOCKED
        )
        DELETE FROM publications p USING old WHERE p.workflow_id = old.workflow_id
        "#,
        after,
        through,
        before,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}

/// Returns the workflow of the last publication of the next batch.
pub(super) async fn find_publications_end(db: &mut PgConnection, after: i64) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- find_publications_end
        SELECT max(workflow_id)
          FROM (SELECT workflow_id FROM publications WHERE workflow_id > $1 ORDER BY workflow_id LIMIT $2) AS batch
        "#,
        after,
        PUBLICATIONS,
    )
    .fetch_one(db)
    .await
}
