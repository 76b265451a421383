//! Step 7 of 7: which workflows that follow a shard have an undecided time, and which cease to follow.

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;

use super::shard::Shard;
use crate::followers::Followed;

/// How long a stretch of the watermark is at least.
const STRETCH: TimeDelta = TimeDelta::minutes(15);
/// How many stretches a span has at most, however long the watchdog was down.
const STRETCHES: i32 = 96;
/// For how many due times one statement reads the decisions, each for all workflows of its timing.
const TIMES: usize = 200;

/// The due times of a stretch, by timing, as the columns of a statement.
#[derive(Default)]
pub(super) struct DueColumns {
    crons: Vec<String>,
    timezones: Vec<String>,
    times: Vec<DateTime<Utc>>,
}

impl DueColumns {
    /// Adds the times that a timing names in a stretch. Returns false if they cannot be computed.
    #[must_use]
    pub(super) fn add_times(&mut self, timing: &Followed, after: DateTime<Utc>, until: DateTime<Utc>) -> bool {
        let due = timing.list_times(after, until);
        for due in &due.times {
            self.crons.push(timing.cron.clone());
            self.timezones.push(timing.timezone.clone());
            self.times.push(due.time);
        }
        due.unjudged.is_empty()
    }
}

/// Returns where the stretch that begins after `after` ends.
pub(super) fn stretch_end(after: DateTime<Utc>, from: DateTime<Utc>, until: DateTime<Utc>) -> DateTime<Utc> {
    (after + STRETCH.max((until - from) / STRETCHES)).min(until)
}

/// Returns the workflows that follow the shard and have no decision about one of these times.
pub(super) async fn find_undecided(db: &mut PgConnection, shard: &Shard, due: &DueColumns) -> sqlx::Result<Vec<i64>> {
    let mut found = Vec::new();
    for first in (0..due.times.len()).step_by(TIMES) {
        let end = due.times.len().min(first + TIMES);
        found.extend(
            undecided_of(db, shard, &due.crons[first..end], &due.timezones[first..end], &due.times[first..end]).await?,
        );
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

async fn undecided_of(
    db: &mut PgConnection,
    shard: &Shard,
    crons: &[String],
    timezones: &[String],
    times: &[DateTime<Utc>],
) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        r#"
        -- followers with an undecided time: LATERAL with OFFSET and a subquery of one row, because joins could read all
        -- followers of the shard and the whole history; $5 and $6 are the bounds of all times, so that Postgres reads only
        -- their days
        SELECT DISTINCT l.workflow_id AS "workflow_id!"
          FROM unnest($2::text[], $3::text[], $4::timestamptz[]) AS due (cron, timezone, time)
         CROSS JOIN LATERAL (SELECT workflow_id FROM ledger
                              WHERE shard = $1 AND watch_at IS NULL AND cron IS NOT NULL
                                AND cron = due.cron AND timezone = due.timezone AND cursor < due.time
                                AND (starts_at IS NULL OR starts_at <= due.time) AND (ends_at IS NULL OR ends_at > due.time)
                             OFFSET 0) AS l
         WHERE (SELECT TRUE FROM occurrences o
                 WHERE o.workflow_id = l.workflow_id AND o.scheduled_time = due.time
                   AND o.scheduled_time BETWEEN $5 AND $6
                 LIMIT 1) IS NULL
        "#,
        shard.id,
        crons,
        timezones,
        times,
        times.iter().min().copied(),
        times.iter().max().copied(),
    )
    .fetch_all(db)
    .await
}

/// Makes the watchdog check these workflows on their own, from the watermark on, so that it may move past them.
/// Returns how many still follow the shard, because another transaction has locked their rows: then it may not.
pub(super) async fn cease_to_follow(
    db: &mut PgConnection,
    shard: &Shard,
    workflows: &[i64],
    through: DateTime<Utc>,
) -> sqlx::Result<i64> {
    sqlx::query!(
        r#"
        -- cease to follow the shard: it waits for no lock
        WITH followers AS MATERIALIZED (
            SELECT workflow_id FROM ledger
             WHERE workflow_id = ANY($1) AND shard = $3 AND watch_at IS NULL
               FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE ledger l
           SET cursor = GREATEST(l.cursor, $2), watch_at = GREATEST(l.cursor, $2) + INTERVAL '1 microsecond'
          FROM followers f
         WHERE l.workflow_id = f.workflow_id
        "#,
        workflows,
        through,
        shard.id,
    )
    .execute(&mut *db)
    .await?;
    count_followers(db, workflows).await
}

async fn count_followers(db: &mut PgConnection, workflows: &[i64]) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- count those that still follow
        SELECT count(*) AS "count!" FROM ledger WHERE workflow_id = ANY($1) AND watch_at IS NULL
        "#,
        workflows,
    )
    .fetch_one(db)
    .await
}

/// Returns the workflows that follow the shard by a timing whose due times cannot be computed.
pub(super) async fn find_of_timing(db: &mut PgConnection, shard: &Shard, timing: &Followed) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        r#"
        -- followers of one timing
        SELECT workflow_id FROM ledger
         WHERE shard = $1 AND watch_at IS NULL AND cron IS NOT NULL AND cron = $2 AND timezone = $3
        "#,
        shard.id,
        timing.cron,
        timing.timezone,
    )
    .fetch_all(db)
    .await
}
