//! Step 7 of 7: the shares of the watchdog. Instances lease them separately, so that they share the work after an outage.
//!
//! The lease only prevents double work. What a pass whose lease another pass has taken may not do any more, is to move
//! the watermark and to let workflows follow it: both are fenced by the epoch.

use chrono::{DateTime, Utc};
use db::PgConnection;

/// How long a lease lasts without a renewal; each batch renews it.
const LEASE_SECS: f64 = 60.0;

/// A shard that this pass has leased.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shard {
    pub(super) id: i16,
    pub(super) epoch: i64,
    /// Up to when the due times of the workflows that follow it are decided.
    pub(super) decided_through: DateTime<Utc>,
}

/// Whether the pass still has the lease of its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// It has.
    Ours,
    /// Another pass has taken the shard, and continues with it.
    Lost,
}

/// Leases the shard that is furthest behind, of those without a lease and except these. A shard without a workflow that
/// may have a time up to `until` is left out.
pub(super) async fn lease_next(
    db: &mut PgConnection,
    except: &[i16],
    until: DateTime<Utc>,
) -> sqlx::Result<Option<Shard>> {
    sqlx::query_as!(
        Shard,
        r#"
        -- lease a shard: a lease that ends later than any lease can is of a clock that has gone back since
        UPDATE watchdog_shards
           SET epoch = epoch + 1, lease_until = cronbox_now() + make_interval(secs => $2)
         WHERE shard = (SELECT s.shard FROM watchdog_shards s
                         WHERE s.shard <> ALL($1)
                           AND (s.lease_until IS NULL OR s.lease_until <= cronbox_now()
                                OR s.lease_until > cronbox_now() + make_interval(secs => $2))
                           AND (EXISTS (SELECT FROM ledger l
                                         WHERE l.shard = s.shard AND l.watch_at IS NULL AND l.cron IS NOT NULL)
                                OR EXISTS (SELECT FROM ledger l WHERE l.shard = s.shard AND l.watch_at <= $3))
                         ORDER BY s.decided_through, s.shard
                         LIMIT 1
                           FOR NO KEY UPDATE OF s SKIP LOCKED)
        RETURNING shard AS id, epoch, decided_through
        "#,
        except,
        LEASE_SECS,
        until,
    )
    .fetch_optional(db)
    .await
}

/// Renews the lease, as the first statement of a batch: until the batch commits, no other pass can take the shard.
/// Returns up to when the shard is decided; `None` if the lease is lost.
pub(super) async fn renew_lease(tx: &mut PgConnection, shard: &Shard) -> sqlx::Result<Option<DateTime<Utc>>> {
    sqlx::query_scalar!(
        r#"
        -- renew the lease of a shard
        UPDATE watchdog_shards SET lease_until = cronbox_now() + make_interval(secs => $3)
         WHERE shard = $1 AND epoch = $2
        RETURNING decided_through
        "#,
        shard.id,
        shard.epoch,
        LEASE_SECS,
    )
    .fetch_optional(tx)
    .await
}

/// Records that every due time of the shard's followers up to `through` is decided: no row of a workflow changes.
pub(super) async fn move_watermark(
    db: &mut PgConnection,
    shard: &mut Shard,
    through: DateTime<Utc>,
) -> sqlx::Result<Kept> {
    let moved = sqlx::query_scalar!(
        r#"
        -- move the watermark of a shard: it never goes back
        UPDATE watchdog_shards
           SET decided_through = GREATEST(decided_through, $3), lease_until = cronbox_now() + make_interval(secs => $4)
         WHERE shard = $1 AND epoch = $2
        RETURNING decided_through
        "#,
        shard.id,
        shard.epoch,
        through,
        LEASE_SECS,
    )
    .fetch_optional(db)
    .await?;
    let Some(moved) = moved else { return Ok(Kept::Lost) };
    shard.decided_through = moved;
    Ok(Kept::Ours)
}

/// Returns the shard, so that the next pass need not wait for the end of the lease.
pub(super) async fn release_shard(db: &mut PgConnection, shard: &Shard) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- release a shard
        UPDATE watchdog_shards SET lease_until = NULL WHERE shard = $1 AND epoch = $2
        "#,
        shard.id,
        shard.epoch,
    )
    .execute(db)
    .await
    .map(drop)
}
