//! Step 3 of 7: makes the publisher repair the findings of a sweep, by enqueueing them, never by a direct call.
//!
//! So a repair happens under a claim like any edit, by the current state of the workflow. An unnecessary repair costs a
//! call and changes nothing.

use chrono::{DateTime, Utc};
use db::PgConnection;
use serde::Serialize;
use sqlx::types::Json;

use crate::claim::deployment::Ahead;
use crate::claim::low_water::Marks;
use crate::scheduler::spec::TEMPLATE;
use crate::sweep::difference::Difference;
use crate::sweep::turn::Turn;

/// A schedule that was read in full and is as required.
#[derive(Debug, Serialize)]
pub(crate) struct Confirmed {
    pub(crate) workflow_id: i64,
    pub(crate) epoch: i64,
    pub(crate) modified_on: Option<DateTime<Utc>>,
}

/// A schedule that is as required although there is no publication.
#[derive(Debug, Serialize)]
pub(crate) struct Adopted {
    pub(crate) workflow_id: i64,
    pub(crate) revision: i64,
    pub(crate) spec_hash: String,
    pub(crate) schedule_name: String,
    pub(crate) modified_on: Option<DateTime<Utc>>,
}

/// A workflow whose schedule is to be published again.
#[derive(Debug, Serialize)]
pub(crate) struct Repair<'a> {
    pub(crate) workflow_id: i64,
    /// Only if the publication still has this epoch; `None` = whichever it has.
    pub(crate) epoch: Option<i64>,
    /// The value in `publications.drift`.
    pub(crate) class: &'a str,
}

/// Enqueues differences; returns for how many, because publishers already process the others.
pub(crate) async fn enqueue_differences(
    tx: &mut PgConnection,
    found: &[Difference],
    now: DateTime<Utc>,
) -> sqlx::Result<u64> {
    let repairs: Vec<_> =
        found.iter().map(|one| Repair { workflow_id: one.workflow_id, epoch: one.epoch, class: &one.class }).collect();
    Ok(enqueue_repairs(tx, &repairs, now).await?.len() as u64)
}

/// Enqueues repairs; returns the workflows that no publisher processes already.
pub(crate) async fn enqueue_repairs(
    tx: &mut PgConnection,
    repairs: &[Repair<'_>],
    now: DateTime<Utc>,
) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        r#"
        -- enqueue repairs: without workflows that were claimed or edited since the comparison, because publishers
        -- already process them; spec_hash is cleared, so that the publisher calls
        WITH free AS MATERIALIZED (
            SELECT p.workflow_id, f.class
              FROM jsonb_to_recordset($1) AS f (workflow_id bigint, epoch bigint, class text)
              JOIN publications AS p ON p.workflow_id = f.workflow_id AND p.epoch = COALESCE(f.epoch, p.epoch)
             WHERE p.lease_owner IS NULL
               AND (p.due_at IS NULL OR p.due_at > cronbox_now())
             ORDER BY p.workflow_id
               FOR UPDATE OF p SKIP LOCKED
        ), repaired AS (
            UPDATE publications AS p
               SET spec_hash = NULL,
                   due_at = cronbox_now(),
                   is_repair = TRUE,
                   attempt_count = 0,
                   failures = 0,
                   error_class = NULL,
                   drift = free.class
              FROM free
             WHERE p.workflow_id = free.workflow_id
            RETURNING p.workflow_id, p.desired_revision, free.class
        )
        INSERT INTO outbox_events (aggregate_id, op, payload, created_on)
        SELECT workflow_id, 'upsert', jsonb_build_object('revision', desired_revision, 'drift', class), $2
          FROM repaired
        RETURNING aggregate_id
        "#,
        Json(repairs) as _,
        now,
    )
    .fetch_all(tx)
    .await
}

/// Enqueues workflows without a publication, each with its current revision.
pub(crate) async fn enqueue_unpublished(
    tx: &mut PgConnection,
    found: &[Difference],
    now: DateTime<Utc>,
) -> sqlx::Result<u64> {
    let enqueued = sqlx::query!(
        r#"
        -- enqueue unpublished: a publisher already processes a workflow that has a publication by now
        WITH made AS (
            INSERT INTO publications (workflow_id, desired_revision, due_at, is_repair, drift)
            SELECT workflow_id, revision, cronbox_now(), TRUE, class
              FROM jsonb_to_recordset($1) AS f (workflow_id bigint, revision bigint, class text)
             ORDER BY workflow_id
            ON CONFLICT DO NOTHING
            RETURNING workflow_id, desired_revision, drift
        )
        INSERT INTO outbox_events (aggregate_id, op, payload, created_on)
        SELECT workflow_id, 'upsert', jsonb_build_object('revision', desired_revision, 'drift', drift), $2
          FROM made
        "#,
        Json(found) as _,
        now,
    )
    .execute(tx)
    .await?;
    Ok(enqueued.rows_affected())
}

/// Inserts publications for schedules that are as required, after a restore that lost them.
pub(crate) async fn adopt_schedules(tx: &mut PgConnection, adopted: &[Adopted]) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- adopt
        INSERT INTO publications (workflow_id, desired_revision, applied_revision, applied_on, spec_hash,
                                  schedule_name, template, seen_modified_at)
        SELECT workflow_id, revision, revision, cronbox_now(), spec_hash, schedule_name, $2, modified_on
          FROM jsonb_to_recordset($1) AS a (
               workflow_id bigint, revision bigint, spec_hash text, schedule_name text, modified_on timestamptz)
         ORDER BY workflow_id
        ON CONFLICT DO NOTHING
        "#,
        Json(adopted) as _,
        TEMPLATE,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Stores AWS's time of the last change, so that an unchanged schedule need not be read again. What an accepted gap had left of
/// the schedule is overwritten by now, so it excuses no later restore.
pub(crate) async fn confirm_schedules(tx: &mut PgConnection, confirmed: &[Confirmed]) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- confirm: without workflows that were claimed since
        WITH good AS MATERIALIZED (
            SELECT p.workflow_id, c.modified_on
              FROM jsonb_to_recordset($1) AS c (workflow_id bigint, epoch bigint, modified_on timestamptz)
              JOIN publications AS p ON p.workflow_id = c.workflow_id AND p.epoch = c.epoch
             ORDER BY p.workflow_id
               FOR UPDATE OF p SKIP LOCKED
        )
        UPDATE publications AS p
           SET seen_modified_at = good.modified_on,
               ahead_revision = NULL
          FROM good
         WHERE p.workflow_id = good.workflow_id
           AND (p.seen_modified_at IS DISTINCT FROM good.modified_on OR p.ahead_revision IS NOT NULL)
        "#,
        Json(confirmed) as _,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Records revisions above the database's that did not make it wait for acceptance, because the last accepted gap has left them.
///
/// The repair of such a schedule may wait for force, and until then another program may change it. [`confirm_schedules`] removes
/// the record.
pub(crate) async fn record_ahead(tx: &mut PgConnection, ahead: &[Ahead]) -> sqlx::Result<()> {
    if ahead.is_empty() {
        return Ok(());
    }
    let (workflow_ids, revisions): (Vec<i64>, Vec<i64>) =
        ahead.iter().map(|one| (one.workflow_id, one.revision)).unzip();
    sqlx::query!(
        r#"
        -- record ahead: without workflows that have the revision by now, because they were edited after the publisher read them
        WITH higher AS MATERIALIZED (
            SELECT p.workflow_id, s.revision
              FROM unnest($1::bigint[], $2::bigint[]) AS s (workflow_id, revision)
              JOIN workflows AS w ON w.id = s.workflow_id AND w.revision < s.revision
              JOIN publications AS p ON p.workflow_id = s.workflow_id
             WHERE p.ahead_revision IS NULL OR p.ahead_revision < s.revision
             ORDER BY p.workflow_id
               FOR UPDATE OF p SKIP LOCKED
        )
        UPDATE publications AS p
           SET ahead_revision = higher.revision
          FROM higher
         WHERE p.workflow_id = higher.workflow_id
        "#,
        &workflow_ids,
        &revisions,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Counts the repairs that are due, up to `most`.
pub(crate) async fn count_due_repairs(tx: &mut PgConnection, marks: Marks, most: i64) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- count due repairs: from the mark on, as a claim does
        SELECT COUNT(*) AS "count!"
          FROM (SELECT FROM publications
                 WHERE is_repair
                   AND due_at >= CASE WHEN $2 <= (SELECT cronbox_now()) THEN COALESCE($3::timestamptz, '-infinity')
                                      ELSE '-infinity' END
                   AND due_at <= (SELECT cronbox_now())
                 LIMIT $1) AS due
        "#,
        most,
        marks.read_on,
        marks.repairs,
    )
    .fetch_one(tx)
    .await
}

/// Records which workflows were listed.
pub(crate) async fn record_sightings(tx: &mut PgConnection, turn: &Turn, ids: &[i64]) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- sight: a page may be read twice. The row of the last sweep is updated in place, so that no sweep leaves rows
        -- to delete; in order, as everywhere
        INSERT INTO sweep_sightings AS s (workflow_id, sweep_id)
        SELECT workflow_id, $1 FROM unnest($2::bigint[]) AS listed (workflow_id) ORDER BY workflow_id
        ON CONFLICT (workflow_id) DO UPDATE SET sweep_id = excluded.sweep_id WHERE s.sweep_id <> excluded.sweep_id
        "#,
        turn.id,
        ids,
    )
    .execute(tx)
    .await
    .map(drop)
}
