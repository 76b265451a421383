//! Step 7 of 7: which workflows the watchdog has to check on their own, and which pauses are over.

use chrono::{DateTime, Utc};
use db::PgConnection;

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
}

/// Lists the workflows of a shard that are checked on their own, and whose next time to decide is not later than
/// `until`, by key, except those in `but`.
pub(super) async fn list_after(
    db: &mut PgConnection,
    shard: i16,
    last: Key,
    until: DateTime<Utc>,
    but: &[i64],
    limit: i64,
) -> sqlx::Result<Vec<Key>> {
    sqlx::query_as!(
        Key,
        r#"
        -- workflows due: nothing is locked yet, and each is checked again under its lock
        SELECT watch_at AS "watch_at!", workflow_id AS id
          FROM ledger
         WHERE shard = $6 AND watch_at <= $3 AND (watch_at, workflow_id) > ($1, $2) AND workflow_id <> ALL($4)
         ORDER BY watch_at, workflow_id
         LIMIT $5
        "#,
        last.watch_at,
        last.id,
        until,
        but,
        limit,
        shard,
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
