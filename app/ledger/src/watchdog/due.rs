//! Step 7 of 7: which workflows the watchdog has to check, and a fast path for those without undecided times.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use schedule::WorkflowId;
use schedule::delivery::GRACE;

use crate::due_times;
use crate::versions::{self, Version};

/// A workflow with more due times than this does not take the fast path.
const QUIET_TIMES: usize = 100;

/// The position of a pass in the order of `watch_at`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) watch_at: DateTime<Utc>,
    pub(super) id: i64,
}

impl Key {
    /// Before all workflows.
    pub(super) fn before_all() -> Self {
        Self { watch_at: DateTime::UNIX_EPOCH, id: 0 }
    }

    pub(super) fn workflow_id(&self) -> WorkflowId {
        WorkflowId(self.id)
    }
}

/// Lists the workflows whose next time to decide is not later than `until`, by key, except those in `met`.
pub(super) async fn list_after(
    db: &mut PgConnection,
    last: Key,
    until: DateTime<Utc>,
    but: &[i64],
    limit: i64,
) -> sqlx::Result<Vec<Key>> {
    sqlx::query_as!(
        Key,
        r#"
        -- workflows due: nothing is locked yet, and each is checked again under its lock
        SELECT watch_at AS "watch_at!", id
          FROM workflows
         WHERE watch_at <= $3 AND (watch_at, id) > ($1, $2) AND id <> ALL($4)
         ORDER BY watch_at, id
         LIMIT $5
        "#,
        last.watch_at,
        last.id,
        until,
        but,
        limit,
    )
    .fetch_all(db)
    .await
}

/// Lists workflows whose pause is over.
pub(super) async fn list_ended_pauses(db: &mut PgConnection, now: DateTime<Utc>) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        r#"
        -- pauses that are over; the next pass ends those beyond the limit
        SELECT id FROM workflows WHERE pause_until <= $1 ORDER BY pause_until LIMIT 1000
        "#,
        now,
    )
    .fetch_all(db)
    .await
}

/// Advances the cursors of the workflows of a batch whose times are all decided, and returns the others.
///
/// Normally every workflow takes this path: a few statements for hundreds of workflows.
pub(super) async fn settle_quiet(pool: &PgPool, batch: &[Key], now: DateTime<Utc>) -> sqlx::Result<Vec<WorkflowId>> {
    let mut tx = db::begin_transaction(pool).await?;
    let done = settle_batch(&mut tx, batch, now).await;
    tx.commit_or_rollback(done).await
}

async fn settle_batch(tx: &mut PgConnection, batch: &[Key], now: DateTime<Utc>) -> sqlx::Result<Vec<WorkflowId>> {
    let until = now - GRACE;
    let locked = lock_batch(tx, batch, until, now).await?;
    let mut versions = versions::read_of_all(tx, &locked).await?;
    let mut quiet: Vec<_> = locked
        .into_iter()
        .filter_map(|(id, after)| Quiet::of(id, &versions.remove(&id).unwrap_or_default(), after, until))
        .collect();
    let undecided = undecided(tx, &quiet).await?;
    quiet.retain(|quiet| !undecided.contains(&quiet.id));
    move_on(tx, &quiet, until).await?;
    let settled: HashSet<i64> = quiet.iter().map(|quiet| quiet.id).collect();
    Ok(batch.iter().filter(|key| !settled.contains(&key.id)).map(|key| WorkflowId(key.id)).collect())
}

/// A workflow that may take the fast path.
struct Quiet {
    id: i64,
    times: Vec<DateTime<Utc>>,
    watch_at: Option<DateTime<Utc>>,
}

impl Quiet {
    /// Returns `None` if it has too many due times, or times that cannot be computed.
    fn of(id: i64, versions: &[Version], after: DateTime<Utc>, until: DateTime<Utc>) -> Option<Self> {
        let due_times = due_times::list_due_times(versions, after.min(until), until, QUIET_TIMES);
        let is_all = due_times.unjudged.is_empty() && due_times.through == until;
        let times = due_times.times.iter().map(|due| due.time).collect();
        is_all.then(|| Self { id, times, watch_at: due_times::next_due_time(versions, until) })
    }
}

/// Locks the workflows of a batch that are not locked and still due; returns them with their cursors.
async fn lock_batch(
    tx: &mut PgConnection,
    batch: &[Key],
    until: DateTime<Utc>,
    now: DateTime<Utc>,
) -> sqlx::Result<Vec<(i64, DateTime<Utc>)>> {
    let ids: Vec<_> = batch.iter().map(|key| key.id).collect();
    let rows = sqlx::query!(
        r#"
        -- lock a batch: without workflows whose pause is over, because that pause must end first
        SELECT id, COALESCE(ledger_cursor, $2) AS "cursor!"
          FROM workflows
         WHERE id = ANY($1) AND watch_at <= $2 AND (pause_until IS NULL OR pause_until > $3)
         ORDER BY id
           FOR NO KEY UPDATE SKIP LOCKED
        "#,
        &ids,
        until,
        now,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.cursor)).collect())
}

async fn undecided(tx: &mut PgConnection, quiet: &[Quiet]) -> sqlx::Result<HashSet<i64>> {
    let (ids, times): (Vec<_>, Vec<_>) =
        quiet.iter().flat_map(|quiet| quiet.times.iter().map(|time| (quiet.id, *time))).unzip();
    let found = sqlx::query_scalar!(
        r#"
        -- workflows with an undecided time
        SELECT DISTINCT due.workflow_id AS "workflow_id!"
          FROM unnest($1::bigint[], $2::timestamptz[]) AS due (workflow_id, time)
         WHERE NOT EXISTS (SELECT FROM occurrences o
                            WHERE o.workflow_id = due.workflow_id AND o.scheduled_time = due.time)
        "#,
        &ids,
        &times,
    )
    .fetch_all(tx)
    .await?;
    Ok(found.into_iter().collect())
}

async fn move_on(tx: &mut PgConnection, quiet: &[Quiet], until: DateTime<Utc>) -> sqlx::Result<()> {
    let ids: Vec<_> = quiet.iter().map(|quiet| quiet.id).collect();
    let watch_at: Vec<_> = quiet.iter().map(|quiet| quiet.watch_at).collect();
    sqlx::query!(
        r#"
        -- move the cursors of a batch on: they never go back
        UPDATE workflows w
           SET ledger_cursor = GREATEST(w.ledger_cursor, $3), watch_at = quiet.watch_at
          FROM unnest($1::bigint[], $2::timestamptz[]) AS quiet (id, watch_at)
         WHERE w.id = quiet.id
        "#,
        &ids,
        &watch_at as &[Option<DateTime<Utc>>],
        until,
    )
    .execute(tx)
    .await
    .map(drop)
}
