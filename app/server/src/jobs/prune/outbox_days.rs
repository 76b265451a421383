//! Step 7 of 7: the days of the outbox: makes their partitions ahead, and drops old ones.
//!
//! A day has only rows that a publisher has settled. Open, failed and discarded rows are elsewhere
//! (docs/adr/0023-the-outbox-is-a-queue-and-a-history.md). As for the other tables, what is locked stays until the next
//! turn.

use chrono::{DateTime, Utc};
use db::PgConnection;

use super::partitions::Dropped;

/// Today, and the days ahead that have partitions, as of the other tables.
const DAYS_AHEAD: i32 = 8;
/// How many partitions a turn drops: a lowered retention is done in a few turns.
const MOST_DROPPED: u64 = 40;

/// Makes the partitions of the next days.
pub(super) async fn make_next_days(db: &mut PgConnection, now: DateTime<Utc>) -> sqlx::Result<()> {
    let made = sqlx::query_scalar!(
        r#"
        -- make the next days of the outbox
        SELECT make_outbox_days($1, $2) AS "made!"
        "#,
        now,
        DAYS_AHEAD,
    )
    .fetch_one(db)
    .await?;
    if made > 0 {
        tracing::info!(partitions = made, "partitions by day of the outbox made");
    }
    Ok(())
}

/// Drops the partitions of days whose rows were all settled before this time.
pub(super) async fn drop_old_days(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<Dropped> {
    let mut dropped = Dropped::default();
    while dropped.partitions < MOST_DROPPED {
        match drop_oldest(db, before).await?.as_str() {
            "dropped" => dropped.partitions += 1,
            "none" => return Ok(dropped),
            "locked" => {
                tracing::info!("old day of the outbox not dropped: a transaction uses it; the next turn tries again");
                return Ok(dropped);
            }
            other => {
                tracing::warn!(
                    reason = other,
                    "old day of the outbox not dropped: rows without a day are removed first"
                );
                return Ok(dropped);
            }
        }
    }
    Ok(Dropped { may_be_more: true, ..dropped })
}

/// Returns `dropped`, `none`, `locked` or `needed`.
async fn drop_oldest(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<String> {
    sqlx::query_scalar!(
        r#"
        -- drop the oldest day of the outbox
        SELECT drop_oldest_outbox_day($1) AS "outcome!"
        "#,
        before,
    )
    .fetch_one(db)
    .await
}
