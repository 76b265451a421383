//! Step 3 of 7: orphans: schedules of this environment that neither a workflow nor a delete event explains.
//!
//! A deleted schedule cannot be restored, so no orphan is deleted at first sight. Two sweeps must have listed it, ten
//! minutes apart. If there are many orphans, the database is probably wrong, or rows of `workflows` are missing. Each
//! orphan is read before its deletion, because it may be another database's.

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::ScheduleName;
use uuid::Uuid;

use crate::scheduler::identity::Identity;
use crate::sweep::limit;
use crate::sweep::turn::Turn;

/// Records orphans that were listed.
pub(crate) async fn record_orphans(tx: &mut PgConnection, names: &[String]) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- note orphans
        INSERT INTO orphans (name, first_seen, last_seen)
        SELECT name, cronbox_now(), cronbox_now() FROM unnest($1::text[]) AS listed (name) ORDER BY name
        ON CONFLICT (name) DO UPDATE SET last_seen = excluded.last_seen
        "#,
        names,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Lists the first `limit` orphans that may be deleted; none if they are too many without force. [`list_ripe`] lists the
/// others.
pub(crate) async fn list_deletable(tx: &mut PgConnection, turn: &mut Turn, limit: i64) -> sqlx::Result<Vec<String>> {
    let Census { existing, ripe } = census(tx, turn).await?;
    let ours = turn.findings.count_ours();
    let findings = &mut turn.findings;
    findings.orphans_waiting = (existing - ripe).unsigned_abs();
    if ripe > limit::most_of(ours) && !turn.force && findings.orphans_deleted == 0 {
        findings.orphans_refused = ripe.unsigned_abs();
        tracing::error!(
            orphans = ripe,
            "sweep: {ripe} of {ours} schedules are orphans, too many to delete without force"
        );
        return Ok(Vec::new());
    }
    // The sweep may have refused orphans before the force was requested.
    findings.orphans_refused = 0;
    list_ripe(tx, turn, "", limit).await
}

/// Enqueues a delete event for each orphan, unless its workflow exists again; returns for how many.
pub(crate) async fn enqueue_deletions(
    tx: &mut PgConnection,
    names: &[ScheduleName],
    now: DateTime<Utc>,
) -> sqlx::Result<u64> {
    let (names, ids): (Vec<String>, Vec<i64>) =
        names.iter().map(|name| (name.to_string(), name.workflow_id().0)).unzip();
    let enqueued = sqlx::query!(
        r#"
        -- enqueue deletions: each orphan gets a publication, so that it is deleted under a claim; if a workflow with
        -- this id is created meanwhile, the claim keeps the two apart
        WITH forgotten AS (
            DELETE FROM orphans WHERE name = ANY($1)
        ), publication AS (
            INSERT INTO publications AS p (workflow_id, desired_revision, due_at, is_repair, drift)
            SELECT orphan.workflow_id, 0, cronbox_now(), TRUE, 'orphan'
              FROM unnest($2::bigint[]) AS orphan (workflow_id)
             WHERE NOT EXISTS (SELECT FROM workflows AS w WHERE w.id = orphan.workflow_id)
             ORDER BY orphan.workflow_id
            ON CONFLICT (workflow_id) DO UPDATE
               SET spec_hash = NULL,
                   due_at = cronbox_now(),
                   is_repair = TRUE,
                   attempt_count = 0,
                   failures = 0,
                   error_class = NULL,
                   drift = excluded.drift
             WHERE p.lease_owner IS NULL
            RETURNING workflow_id, desired_revision
        )
        INSERT INTO outbox_events (aggregate_id, op, payload, created_on)
        SELECT workflow_id, 'delete', jsonb_build_object('revision', desired_revision, 'drift', 'orphan'), $3
          FROM publication
        "#,
        &names,
        &ids,
        now,
    )
    .execute(tx)
    .await?;
    Ok(enqueued.rows_affected())
}

/// Records that these orphans have another database's identity, so that they are never deleted.
pub(crate) async fn mark_foreign(tx: &mut PgConnection, foreign: &[(String, Identity)]) -> sqlx::Result<()> {
    let (names, identities): (Vec<String>, Vec<Uuid>) =
        foreign.iter().map(|(name, identity)| (name.clone(), identity.0)).unzip();
    sqlx::query!(
        r#"
        -- mark foreign
        UPDATE orphans AS o
           SET foreign_identity = f.identity
          FROM unnest($1::text[], $2::uuid[]) AS f (name, identity)
         WHERE o.name = f.name
        "#,
        &names,
        &identities,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Deletes the records of orphans that this sweep did not list: they must be listed twice again.
pub(crate) async fn forget_gone(tx: &mut PgConnection, turn: &Turn) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- forget gone
        DELETE FROM orphans WHERE last_seen < (SELECT started_on FROM sweeps WHERE id = $1)
        "#,
        turn.id,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// How many there are, and how many of them may be deleted.
struct Census {
    /// Except those of another database.
    existing: i64,
    ripe: i64,
}

async fn census(tx: &mut PgConnection, turn: &Turn) -> sqlx::Result<Census> {
    sqlx::query_as!(
        Census,
        r#"
        -- census: an orphan is ripe if an earlier sweep listed it, and this one at least ten minutes later
        SELECT (SELECT COUNT(*) FROM orphans WHERE foreign_identity IS NULL) AS "existing!",
               (SELECT COUNT(*) FROM orphans AS o
                 WHERE o.foreign_identity IS NULL
                   AND o.first_seen < s.started_on
                   AND o.first_seen <= o.last_seen - INTERVAL '10 minutes') AS "ripe!"
          FROM sweeps AS s
         WHERE s.id = $1
        "#,
        turn.id,
    )
    .fetch_one(tx)
    .await
}

/// Lists up to `limit` orphans after this name that may be deleted, once it is decided that they are few enough.
pub(crate) async fn list_ripe(
    tx: &mut PgConnection,
    turn: &Turn,
    after: &str,
    limit: i64,
) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar!(
        r#"
        -- list ripe: the orphans that the census counts as ripe
        SELECT o.name
          FROM orphans AS o
          JOIN sweeps AS s ON s.id = $1
         WHERE o.name > $2
           AND o.foreign_identity IS NULL
           AND o.first_seen < s.started_on
           AND o.first_seen <= o.last_seen - INTERVAL '10 minutes'
         ORDER BY o.name
         LIMIT $3
        "#,
        turn.id,
        after,
        limit,
    )
    .fetch_all(tx)
    .await
}
