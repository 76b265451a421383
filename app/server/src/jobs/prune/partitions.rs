//! Step 7 of 7: the partitions of occurrences, runs, results and processed outbox rows by day, and of the audit log by
//! month: makes them ahead, and drops old ones.
//!
//! The functions in the database run as its owner and wait 100 ms for a lock, so that fires do not queue behind a reader
//! with an open transaction. What is locked stays until the next turn, a minute later.

use chrono::{DateTime, Utc};
use db::PgConnection;
use workflows::audit::chain;

use super::old_rows::Ages;

/// Today, and the days ahead that have partitions. The job can fail for a week before a day has none, and then its rows
/// are in the partition after the days until the job makes it.
const DAYS_AHEAD: i32 = 8;
/// Its months are dropped only if their entries are in the hash chain.
const AUDIT_LOG: &str = "audit_log";
/// The tables with partitions by day or month. Results follow their runs.
const TABLES: [&str; 5] = ["occurrences", "runs_ended", "run_results", AUDIT_LOG, "outbox_processed"];
/// How many partitions of one table a turn drops: a lowered retention is done in a few turns.
const MOST_DROPPED: u32 = 40;

/// What happened to the old partitions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dropped {
    /// How many were dropped.
    pub(super) partitions: u64,
    /// Whether a table has more old partitions than one turn drops.
    pub(super) may_be_more: bool,
}

/// Makes the partitions of the next days. One statement per table, because it locks its table until it ends.
pub(super) async fn make_next_days(db: &mut PgConnection, now: DateTime<Utc>) -> sqlx::Result<()> {
    for table in TABLES {
        let made = make_next_days_of(db, table, now).await?;
        if made > 0 {
            tracing::info!(table, partitions = made, "partitions made");
        }
    }
    Ok(())
}

async fn make_next_days_of(db: &mut PgConnection, table: &'static str, now: DateTime<Utc>) -> sqlx::Result<i32> {
    sqlx::query_scalar!(
        r#"
        -- make partitions of the next days
        SELECT make_day_partitions($1, $2, $3) AS "made!"
        "#,
        table,
        now,
        DAYS_AHEAD,
    )
    .fetch_one(db)
    .await
}

/// Returns whether a transaction had locked a table, so that days of it could not be made or dropped.
pub(super) async fn is_one_locked(db: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"
        -- whether a table was locked
        SELECT EXISTS (SELECT FROM partition_bounds WHERE locked_on IS NOT NULL) AS "is_locked!"
        "#
    )
    .fetch_one(db)
    .await
}

/// Drops the partitions of days that are not kept any more.
pub(super) async fn drop_old_days(db: &mut PgConnection, ages: &Ages) -> sqlx::Result<Dropped> {
    let mut dropped = Dropped::default();
    for table in TABLES {
        let Some(before) = ages.of_table(table) else { continue };
        if table == AUDIT_LOG && chain::has_unchained(db, before).await? {
            tracing::warn!(table, "old partition not dropped: some of its entries are not in the hash chain yet");
            continue;
        }
        let partitions = drop_old_days_of(db, table, before, ages.now).await?;
        dropped.partitions += u64::from(partitions);
        dropped.may_be_more |= partitions == MOST_DROPPED;
        if table == AUDIT_LOG && partitions > 0 {
            remove_anchors(db).await?;
        }
    }
    Ok(dropped)
}

/// Removes the blocks of dropped months of the audit log, except for the last one of each team.
async fn remove_anchors(db: &mut PgConnection) -> sqlx::Result<()> {
    while chain::remove_anchors(db).await? > 0 {}
    Ok(())
}

async fn drop_old_days_of(
    db: &mut PgConnection,
    table: &'static str,
    before: DateTime<Utc>,
    now: DateTime<Utc>,
) -> sqlx::Result<u32> {
    let mut partitions = 0;
    while partitions < MOST_DROPPED {
        match drop_oldest(db, table, before, now).await?.as_str() {
            "dropped" => partitions += 1,
            "none" => break,
            "locked" => {
                tracing::info!(table, "old partition not dropped: a transaction uses it; the next turn tries again");
                break;
            }
            other => {
                tracing::warn!(table, reason = other, "old partition not dropped: many of its rows are still needed");
                break;
            }
        }
    }
    Ok(partitions)
}

impl Ages {
    /// The instant before which a partition of the table is old; `None`: it is kept forever.
    fn of_table(&self, table: &str) -> Option<DateTime<Utc>> {
        match table {
            "occurrences" => Some(self.occurrences),
            AUDIT_LOG => self.audit,
            "outbox_processed" => Some(self.processed),
            _ => Some(self.runs),
        }
    }
}

/// Returns `dropped`, `none`, `locked` or `needed`.
async fn drop_oldest(
    db: &mut PgConnection,
    table: &str,
    before: DateTime<Utc>,
    now: DateTime<Utc>,
) -> sqlx::Result<String> {
    sqlx::query_scalar!(
        r#"
        -- drop the oldest partition by day
        SELECT drop_oldest_partition($1, $2, $3) AS "outcome!"
        "#,
        table,
        before,
        now,
    )
    .fetch_one(db)
    .await
}
