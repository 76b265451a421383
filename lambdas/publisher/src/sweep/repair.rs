//! Step 3 of 7: has the publisher put right what a sweep found: by enqueue, never by a call of its own.
//!
//! So a repair is done under a claim like any edit, by the workflow as it stands then; one that was
//! not needed costs a call and changes nothing.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::sweep::findings::Class;
use crate::sweep::turn::Turn;

/// A difference of a workflow that we have published.
#[derive(Debug, Serialize)]
pub(crate) struct Difference {
    pub(crate) workflow_id: i64,
    /// The epoch that the comparison began with.
    pub(crate) epoch: i64,
    pub(crate) class: Class,
}

/// A schedule that was read whole and is as wanted.
#[derive(Debug, Serialize)]
pub(crate) struct Confirmed {
    pub(crate) workflow_id: i64,
    pub(crate) epoch: i64,
    pub(crate) modified_on: Option<DateTime<Utc>>,
}

/// Enqueues differences; returns of how many, the others being worked on already.
pub(crate) async fn enqueue(tx: &mut PgConnection, found: &[Difference], now: DateTime<Utc>) -> sqlx::Result<u64> {
    let enqueued = sqlx::query!(
        r#"
        -- enqueue repairs: not what was claimed or edited since the comparison, that is being seen
        -- to; and what stands is unknown now (spec_hash), so that the publisher calls
        WITH free AS MATERIALIZED (
            SELECT p.workflow_id, f.class
              FROM jsonb_to_recordset($1) AS f (workflow_id bigint, epoch bigint, class text)
              JOIN publications AS p ON p.workflow_id = f.workflow_id AND p.epoch = f.epoch
             WHERE p.lease_owner IS NULL
               AND (p.due_at IS NULL OR p.due_at > cronbox_now())
             ORDER BY p.workflow_id
               FOR UPDATE OF p SKIP LOCKED
        ), repaired AS (
            UPDATE publications AS p
               SET spec_hash = NULL,
                   due_at = cronbox_now(),
                   attempt_count = 0,
                   error_class = NULL,
                   drift = free.class
              FROM free
             WHERE p.workflow_id = free.workflow_id
            RETURNING p.workflow_id, p.desired_revision, free.class
        )
        INSERT INTO outbox_events (aggregate_id, op, payload, created_on)
        SELECT workflow_id, 'upsert', jsonb_build_object('revision', desired_revision, 'drift', class), $2
          FROM repaired
        "#,
        Json(found) as _,
        now,
    )
    .execute(tx)
    .await?;
    Ok(enqueued.rows_affected())
}

/// Enqueues up to `limit` workflows whose schedule should stand and was not listed; 0 = that was all.
pub(crate) async fn enqueue_missing(
    tx: &mut PgConnection,
    turn: &Turn,
    limit: i64,
    now: DateTime<Utc>,
) -> sqlx::Result<u64> {
    let enqueued = sqlx::query!(
        r#"
        -- enqueue missing: only what stood since half a minute before the sweep began, or else the
        -- page on which it would have been may have been read before it was made
        WITH missing AS MATERIALIZED (
            SELECT p.workflow_id
              FROM publications AS p
              JOIN sweeps AS s ON s.id = $1
             WHERE p.schedule_name IS NOT NULL
               AND p.spec_hash IS NOT NULL
               AND p.error_class IS NULL
               AND p.lease_owner IS NULL
               AND (p.due_at IS NULL OR p.due_at > cronbox_now())
               AND p.applied_on < s.started_on - INTERVAL '30 seconds'
               AND NOT EXISTS (
                   SELECT FROM sightings AS seen WHERE seen.sweep_id = s.id AND seen.workflow_id = p.workflow_id
               )
             ORDER BY p.workflow_id
             LIMIT $2
               FOR UPDATE OF p SKIP LOCKED
        ), repaired AS (
            UPDATE publications AS p
               SET spec_hash = NULL,
                   due_at = cronbox_now(),
                   attempt_count = 0,
                   drift = 'missing'
              FROM missing
             WHERE p.workflow_id = missing.workflow_id
            RETURNING p.workflow_id, p.desired_revision
        )
        INSERT INTO outbox_events (aggregate_id, op, payload, created_on)
        SELECT workflow_id, 'upsert', jsonb_build_object('revision', desired_revision, 'drift', 'missing'), $3
          FROM repaired
        "#,
        turn.id,
        limit,
        now,
    )
    .execute(tx)
    .await?;
    Ok(enqueued.rows_affected())
}

/// Enqueues workflows that we never published, each with the revision that it has.
///
/// With a publication of its own, a schedule of unknown origin is seen to under a claim, as all are:
/// should a workflow of this id come to be meanwhile, the two cannot cross.
pub(crate) async fn adopt(
    tx: &mut PgConnection,
    workflows: &[(i64, i64)],
    class: Class,
    now: DateTime<Utc>,
) -> sqlx::Result<u64> {
    let (ids, revisions): (Vec<i64>, Vec<i64>) = workflows.iter().copied().unzip();
    let adopted = sqlx::query!(
        r#"
        -- adopt: who has a publication by now is no stranger any more
        WITH adopted AS (
            INSERT INTO publications (workflow_id, desired_revision, due_at, drift)
            SELECT workflow_id, revision, cronbox_now(), $3
              FROM unnest($1::bigint[], $2::bigint[]) AS found (workflow_id, revision)
             ORDER BY workflow_id
            ON CONFLICT DO NOTHING
            RETURNING workflow_id, desired_revision
        )
        INSERT INTO outbox_events (aggregate_id, op, payload, created_on)
        SELECT workflow_id, 'delete', jsonb_build_object('revision', desired_revision, 'drift', $3::text), $4
          FROM adopted
        "#,
        &ids,
        &revisions,
        class.as_str(),
        now,
    )
    .execute(tx)
    .await?;
    Ok(adopted.rows_affected())
}

/// Remembers AWS's date of what was found good, so that it need not be read again.
pub(crate) async fn confirm(tx: &mut PgConnection, confirmed: &[Confirmed]) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- confirm: not what was claimed since
        WITH good AS MATERIALIZED (
            SELECT p.workflow_id, c.modified_on
              FROM jsonb_to_recordset($1) AS c (workflow_id bigint, epoch bigint, modified_on timestamptz)
              JOIN publications AS p ON p.workflow_id = c.workflow_id AND p.epoch = c.epoch
             ORDER BY p.workflow_id
               FOR UPDATE OF p SKIP LOCKED
        )
        UPDATE publications AS p
           SET seen_modified_at = good.modified_on
          FROM good
         WHERE p.workflow_id = good.workflow_id
           AND p.seen_modified_at IS DISTINCT FROM good.modified_on
        "#,
        Json(confirmed) as _,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Remembers which workflows were listed.
pub(crate) async fn sight(tx: &mut PgConnection, turn: &Turn, ids: &[i64]) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- sight: a page may be read twice
        INSERT INTO sightings (sweep_id, workflow_id)
        SELECT $1, workflow_id FROM unnest($2::bigint[]) AS listed (workflow_id)
        ON CONFLICT DO NOTHING
        "#,
        turn.id,
        ids,
    )
    .execute(tx)
    .await
    .map(drop)
}
