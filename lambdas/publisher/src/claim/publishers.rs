//! Step 3 of 7: the active publishers, which share the account's quota.
//!
//! A publisher that sweeps is active too, because its reads count against the same quota.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use db::{PgConnection, PgPool};

use crate::scheduler::lease::LEASE;
use crate::scheduler::rate::Rate;

/// Rows of publishers that crashed are deleted after this time.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// Records that `owner` is active, and returns how many publishers are, including it; a claim does the same by itself.
async fn join_publishers(connection: &mut PgConnection, owner: &str) -> sqlx::Result<u32> {
    let others = sqlx::query_scalar!(
        r#"
        -- join: records this publisher, and counts the others
        WITH me AS (
            INSERT INTO publishers (owner, live_until)
            VALUES ($1, cronbox_now() + make_interval(secs => $2))
            ON CONFLICT (owner) DO UPDATE SET live_until = excluded.live_until
        )
        SELECT COUNT(*) AS "count!" FROM publishers WHERE live_until > cronbox_now() AND owner <> $1
        "#,
        owner,
        LEASE.as_secs_f64(),
    )
    .fetch_one(connection)
    .await?;
    Ok(u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1))
}

/// Records that a sweep of `owner` is active, and reduces `rate` to its share.
pub(crate) async fn join_and_share(pool: &PgPool, owner: &str, rate: &Rate) {
    let joined = async { join_publishers(&mut *pool.acquire().await?, owner).await };
    match joined.await {
        Ok(publishers) => rate.share_among(publishers),
        Err(error) => tracing::debug!(%error, "other publishers not counted; the next page of the sweep counts them"),
    }
}

/// Counts the publishers that have leases now.
pub(crate) async fn count_publishers(pool: &PgPool) -> sqlx::Result<u32> {
    let live = sqlx::query_scalar!(
        r#"
        -- count live publishers
        SELECT COUNT(*) AS "count!" FROM publishers WHERE live_until > cronbox_now()
        "#
    )
    .fetch_one(pool)
    .await?;
    Ok(u32::try_from(live).unwrap_or(u32::MAX))
}

/// Deletes the row of `owner`, and those of publishers that crashed an hour ago.
async fn delete_publisher(pool: &PgPool, owner: &str) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- leave
        DELETE FROM publishers WHERE owner = $1 OR live_until < cronbox_now() - make_interval(secs => $2)
        "#,
        owner,
        FORGOTTEN.as_secs_f64(),
    )
    .execute(pool)
    .await
    .map(drop)
}

/// How many drains and sweeps of this process are active; they share one row.
#[derive(Debug, Default)]
pub(crate) struct Presence(AtomicU32);

impl Presence {
    /// Records that a drain or a sweep begins; its first claim or list writes the row.
    pub(crate) fn begin_activity(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a drain or a sweep of `owner` has ended, also with an error; the last one deletes the row.
    pub(crate) async fn end_activity(&self, pool: &PgPool, owner: &str) {
        if self.0.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        if let Err(error) = delete_publisher(pool, owner).await {
            tracing::debug!(%error, "row of this publisher not deleted; it expires");
        }
    }
}
