//! Step 3 of 7: required schedules that were not listed are created again, however many they are.
//!
//! Which schedules are required is read from `workflows`, never from `publications`, because the publications may be
//! wrong. They are read a slice at a time, in the order of their ids; the sweep's row has how far that is done, so that a
//! killed sweep continues there.

use chrono::{DateTime, Utc};
use db::PgConnection;

use crate::sweep::tombstones::prune_tombstones;
use crate::sweep::turn::Turn;

/// How many workflows one statement reads.
const SLICE: i64 = 50_000;

/// Whether there may be more missing schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    Done,
    More,
}

/// What one statement found in a slice.
struct Missing {
    /// Workflows whose schedule is missing.
    found: i64,
    /// Of those, enqueued.
    enqueued: i64,
    /// The last of them.
    last: Option<i64>,
}

impl Missing {
    /// Returns up to which workflow the slice was searched: to its end, unless the limit ended the search.
    fn reached(&self, slice: Slice, limit: i64) -> Slice {
        let last = if self.found < limit { None } else { self.last };
        Slice { until: last.unwrap_or(slice.until), ..slice }
    }
}

/// Workflows by id, without the first and with the last.
#[derive(Clone, Copy, Debug)]
struct Slice {
    after: i64,
    until: i64,
}

/// Enqueues missing schedules of the next slice of workflows, at most about `limit`.
pub(crate) async fn search_slice(
    tx: &mut PgConnection,
    turn: &mut Turn,
    limit: i64,
    now: DateTime<Utc>,
) -> sqlx::Result<Search> {
    let after = turn.missing_after;
    let Some(until) = end_of_slice(tx, after).await? else {
        forget_unlisted(tx, turn, Slice { after, until: i64::MAX }).await?;
        prune_tombstones(tx, after, i64::MAX).await?;
        return Ok(Search::Done);
    };
    let slice = Slice { after, until };
    let unpublished = enqueue_never_published(tx, turn, slice, limit, now).await?;
    let slice = unpublished.reached(slice, limit);
    let missing = enqueue_missing(tx, turn, slice, limit, now).await?;
    let slice = missing.reached(slice, limit);
    forget_unlisted(tx, turn, slice).await?;
    prune_tombstones(tx, slice.after, slice.until).await?;
    turn.missing_after = slice.until;
    turn.findings.missing += (unpublished.enqueued + missing.found).unsigned_abs();
    turn.findings.repaired += (unpublished.enqueued + missing.enqueued).unsigned_abs();
    Ok(Search::More)
}

/// Returns the last workflow of the slice after this one; `None` = there are no more workflows.
async fn end_of_slice(tx: &mut PgConnection, after: i64) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- end of slice
        SELECT MAX(id) FROM (SELECT id FROM workflows WHERE id > $1 ORDER BY id LIMIT $2) AS slice
        "#,
        after,
        SLICE,
    )
    .fetch_one(tx)
    .await
}

/// Enqueues up to `limit` workflows of the slice whose required schedule was not listed.
async fn enqueue_missing(
    tx: &mut PgConnection,
    turn: &Turn,
    slice: Slice,
    limit: i64,
    now: DateTime<Utc>,
) -> sqlx::Result<Missing> {
    sqlx::query_as!(
        Missing,
        r#"
        -- enqueue missing: the bounds of the slice are repeated for each table, so that no plan reads more of any. Only schedules that existed half a minute before the sweep began, because the sweep may have
        -- read the page of a newer one before it was created. A failed workflow is tried once each time that its
        -- schedule goes missing; a workflow that is backed off is tried anyway
        WITH missing AS MATERIALIZED (
            SELECT p.workflow_id, COALESCE(p.error_class = 'permanent' AND p.drift = 'missing', FALSE) AS was_tried
              FROM workflows AS w
              JOIN publications AS p ON p.workflow_id = w.id
              JOIN sweeps AS s ON s.id = $1
             WHERE w.id > $2
               AND w.id <= $5
               AND p.workflow_id > $2
               AND p.workflow_id <= $5
               AND w.cron_schedule IS NOT NULL
               AND w.state <> 'archived'
               AND (w.ends_at IS NULL OR w.ends_at > $4)
               AND (p.error_class IS NULL OR (p.error_class = 'permanent' AND p.schedule_name IS NOT NULL))
               AND p.lease_owner IS NULL
               AND (p.due_at IS NULL OR p.due_at > cronbox_now())
               AND (p.applied_on IS NULL OR p.applied_on < s.started_on - INTERVAL '30 seconds')
               AND NOT EXISTS (
                   SELECT FROM sweep_sightings AS seen
                    WHERE seen.workflow_id = w.id
                      AND seen.workflow_id > $2
                      AND seen.workflow_id <= $5
                      AND seen.sweep_id = $1
               )
             ORDER BY p.workflow_id
             LIMIT $3
               FOR UPDATE OF p SKIP LOCKED
        ), repaired AS (
            UPDATE publications AS p
               SET spec_hash = NULL,
                   due_at = cronbox_now(),
                   is_repair = TRUE,
                   attempt_count = 0,
                   failures = 0,
                   error_class = NULL,
                   drift = 'missing'
              FROM missing
             WHERE p.workflow_id = missing.workflow_id
               AND NOT missing.was_tried
            RETURNING p.workflow_id, p.desired_revision
        ), enqueued AS (
            INSERT INTO outbox_events (aggregate_id, op, payload, created_on)
            SELECT workflow_id, 'upsert', jsonb_build_object('revision', desired_revision, 'drift', 'missing'), $4
              FROM repaired
            RETURNING id
        )
        SELECT COUNT(*) AS "found!", MAX(workflow_id) AS last, (SELECT COUNT(*) FROM enqueued) AS "enqueued!"
          FROM missing
        "#,
        turn.id,
        slice.after,
        limit,
        now,
        slice.until,
    )
    .fetch_one(tx)
    .await
}

/// Enqueues up to `limit` workflows of the slice without a publication, which no edit leaves behind.
async fn enqueue_never_published(
    tx: &mut PgConnection,
    turn: &Turn,
    slice: Slice,
    limit: i64,
    now: DateTime<Utc>,
) -> sqlx::Result<Missing> {
    sqlx::query_as!(
        Missing,
        r#"
        -- enqueue never published: an edit inserts the publication in its own transaction, so a missing publication was
        -- lost
        WITH missing AS MATERIALIZED (
            SELECT w.id, w.revision
              FROM workflows AS w
              LEFT JOIN publications AS p ON p.workflow_id = w.id AND p.workflow_id > $4 AND p.workflow_id <= $5
             WHERE p.workflow_id IS NULL
               AND w.id > $4
               AND w.id <= $5
               AND w.cron_schedule IS NOT NULL
               AND w.state <> 'archived'
               AND (w.ends_at IS NULL OR w.ends_at > $3)
               AND NOT EXISTS (
                   SELECT FROM sweep_sightings AS seen
                    WHERE seen.workflow_id = w.id
                      AND seen.workflow_id > $4
                      AND seen.workflow_id <= $5
                      AND seen.sweep_id = $1
               )
             ORDER BY w.id
             LIMIT $2
        ), made AS (
            INSERT INTO publications (workflow_id, desired_revision, due_at, is_repair, drift)
            SELECT id, revision, cronbox_now(), TRUE, 'missing' FROM missing
            ON CONFLICT DO NOTHING
            RETURNING workflow_id, desired_revision
        ), enqueued AS (
            INSERT INTO outbox_events (aggregate_id, op, payload, created_on)
            SELECT workflow_id, 'upsert', jsonb_build_object('revision', desired_revision, 'drift', 'missing'), $3
              FROM made
            RETURNING id
        )
        SELECT COUNT(*) AS "found!", MAX(id) AS last, (SELECT COUNT(*) FROM enqueued) AS "enqueued!" FROM missing
        "#,
        turn.id,
        limit,
        now,
        slice.after,
        slice.until,
    )
    .fetch_one(tx)
    .await
}

/// Removes the sightings of the slice that this sweep did not renew: nothing has listed these workflows since.
async fn forget_unlisted(tx: &mut PgConnection, turn: &Turn, slice: Slice) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- forget unlisted
        DELETE FROM sweep_sightings WHERE workflow_id > $2 AND workflow_id <= $3 AND sweep_id < $1
        "#,
        turn.id,
        slice.after,
        slice.until,
    )
    .execute(tx)
    .await
    .map(drop)
}
