//! Step 3 of 7: required schedules that were not listed are created again, however many they are.
//!
//! Which schedules are required is read from `workflows`, never from `publications`, because the publications may be
//! wrong.

use chrono::{DateTime, Utc};
use db::PgConnection;

use crate::sweep::turn::Turn;

/// The result of one step.
#[derive(Debug)]
pub(crate) struct Missing {
    /// Workflows whose schedule is missing.
    pub(crate) found: u64,
    /// Of those, enqueued.
    pub(crate) enqueued: u64,
    /// The last workflow of this step; `None` = there are no more.
    pub(crate) last: Option<i64>,
}

/// Enqueues up to `limit` workflows after this one whose required schedule was not listed.
pub(crate) async fn enqueue_missing(
    tx: &mut PgConnection,
    turn: &Turn,
    after: i64,
    limit: i64,
    now: DateTime<Utc>,
) -> sqlx::Result<Missing> {
    let found = sqlx::query!(
        r#"
        -- enqueue missing: only schedules that existed half a minute before the sweep began, because the sweep may have
        -- read the page of a newer one before it was created. A failed workflow is tried once each time that its
        -- schedule goes missing; a workflow that is backed off is tried anyway
        WITH missing AS MATERIALIZED (
            SELECT p.workflow_id, COALESCE(p.error_class = 'permanent' AND p.drift = 'missing', FALSE) AS was_tried
              FROM workflows AS w
              JOIN publications AS p ON p.workflow_id = w.id
              JOIN sweeps AS s ON s.id = $1
             WHERE w.id > $2
               AND w.cron_schedule IS NOT NULL
               AND w.state <> 'archived'
               AND (w.ends_at IS NULL OR w.ends_at > $4)
               AND (p.error_class IS NULL OR (p.error_class = 'permanent' AND p.schedule_name IS NOT NULL))
               AND p.lease_owner IS NULL
               AND (p.due_at IS NULL OR p.due_at > cronbox_now())
               AND (p.applied_on IS NULL OR p.applied_on < s.started_on - INTERVAL '30 seconds')
               AND NOT EXISTS (
                   SELECT FROM sightings AS seen WHERE seen.sweep_id = s.id AND seen.workflow_id = w.id
               )
             ORDER BY p.workflow_id
             LIMIT $3
               FOR UPDATE OF p SKIP LOCKED
        ), repaired AS (
            UPDATE publications AS p
               SET spec_hash = NULL,
                   due_at = cronbox_now(),
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
        after,
        limit,
        now,
    )
    .fetch_one(tx)
    .await?;
    Ok(Missing { found: found.found.unsigned_abs(), enqueued: found.enqueued.unsigned_abs(), last: found.last })
}

/// Enqueues up to `limit` workflows without a publication, which no edit leaves behind.
pub(crate) async fn enqueue_never_published(
    tx: &mut PgConnection,
    turn: &Turn,
    limit: i64,
    now: DateTime<Utc>,
) -> sqlx::Result<u64> {
    let enqueued = sqlx::query!(
        r#"
        -- enqueue never published: an edit inserts the publication in its own transaction, so a missing publication was
        -- lost
        WITH missing AS MATERIALIZED (
            SELECT w.id, w.revision
              FROM workflows AS w
              LEFT JOIN publications AS p ON p.workflow_id = w.id
             WHERE p.workflow_id IS NULL
               AND w.cron_schedule IS NOT NULL
               AND w.state <> 'archived'
               AND (w.ends_at IS NULL OR w.ends_at > $3)
               AND NOT EXISTS (
                   SELECT FROM sightings AS seen WHERE seen.sweep_id = $1 AND seen.workflow_id = w.id
               )
             ORDER BY w.id
             LIMIT $2
        ), made AS (
            INSERT INTO publications (workflow_id, desired_revision, due_at, drift)
            SELECT id, revision, cronbox_now(), 'missing' FROM missing
            ON CONFLICT DO NOTHING
            RETURNING workflow_id, desired_revision
        )
        INSERT INTO outbox_events (aggregate_id, op, payload, created_on)
        SELECT workflow_id, 'upsert', jsonb_build_object('revision', desired_revision, 'drift', 'missing'), $3
          FROM made
        "#,
        turn.id,
        limit,
        now,
    )
    .execute(tx)
    .await?;
    Ok(enqueued.rows_affected())
}
