//! Step 3 of 7: the publishers that are at work, which share the account's quota among them.
//!
//! Who sweeps is at work too: its reads count against the same quota.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use db::{PgConnection, PgPool};

use crate::Publisher;
use crate::lease::LEASE;

/// What a publisher that died has left here is swept up after this.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// Notes that `owner` has claimed, and says how many publishers hold leases now, it included.
pub(crate) async fn join(tx: &mut PgConnection, owner: &str) -> sqlx::Result<u32> {
    let others = sqlx::query_scalar!(
        r#"
        -- join: the others as they stood before, and ourselves
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
    .fetch_one(tx)
    .await?;
    Ok(u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1))
}

/// How many publishers hold leases now.
pub(crate) async fn count(pool: &PgPool) -> sqlx::Result<u32> {
    let live = sqlx::query_scalar!(
        r#"
        -- count sharers
        SELECT COUNT(*) AS "count!" FROM publishers WHERE live_until > cronbox_now()
        "#
    )
    .fetch_one(pool)
    .await?;
    Ok(u32::try_from(live).unwrap_or(u32::MAX))
}

/// Takes `owner` off the list, with whoever died an hour ago.
async fn leave(pool: &PgPool, owner: &str) -> sqlx::Result<()> {
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

/// How many drains and sweeps of this process are at work; they share one row.
#[derive(Debug, Default)]
pub(crate) struct Presence(AtomicU32);

impl Publisher {
    /// A drain or a sweep begins; its row is written by the first claim or list.
    pub(crate) fn arrive(&self) {
        self.presence().0.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a sweep of this process is at work, and calls at the share that is left to it.
    pub(crate) async fn join(&self) {
        let joined = async { join(&mut *self.pool().acquire().await?, &self.claimant().owner).await };
        match joined.await {
            Ok(sharers) => self.rate().share(sharers),
            Err(error) => tracing::debug!(%error, "the other publishers cannot be counted; the next page does"),
        }
    }

    /// A drain or a sweep has ended, perhaps in an error; with the last one the row goes.
    pub(crate) async fn leave(&self) {
        if self.presence().0.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        if let Err(error) = leave(self.pool(), &self.claimant().owner).await {
            tracing::debug!(%error, "the list of publishers could not be left; the entry lapses");
        }
    }
}
