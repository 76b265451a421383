//! Step 7 of 7: the workflows that follow their shard, by their timings.
//!
//! A million workflows have a few thousand different timings. So the times that became due are computed once for each
//! timing, and Postgres finds the workflows of these timings by an index that no decision changes.

use chrono::{DateTime, Utc};
use db::PgConnection;
use workflows::State;
use workflows::definition::spec::Timing;

use crate::due_times::{self, DueTimes};
use crate::versions::Version;

/// A cron and a timezone by which at least one workflow of a shard follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// The shard.
    pub shard: i16,
    /// Up to when the due times of the shard are decided.
    pub decided_through: DateTime<Utc>,
    /// The cron.
    pub cron: String,
    /// The timezone; empty = UTC.
    pub timezone: String,
}

impl Followed {
    /// Returns the times that it names after `after`, up to and including `until`; starts and ends are not considered.
    #[must_use]
    pub fn list_times(&self, after: DateTime<Utc>, until: DateTime<Utc>) -> DueTimes {
        due_times::list_due_times(&[self.as_version()], after, until, usize::MAX)
    }

    /// Returns the next time after `after`, or the instant from which it is unknown.
    #[must_use]
    pub fn next_time(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        due_times::next_due_time(&[self.as_version()], after)
    }

    fn as_version(&self) -> Version {
        let timezone = (!self.timezone.is_empty()).then(|| self.timezone.clone());
        Version {
            revision: 0,
            valid_from: DateTime::UNIX_EPOCH,
            ended_on: None,
            ended_by: None,
            timing: Timing { cron: Some(self.cron.clone()), timezone, ..Timing::default() },
            state: State::Active,
        }
    }
}

/// Lists the timings by which workflows follow their shards: those of one shard, or of all.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_followed(db: &mut PgConnection, shard: Option<i16>) -> sqlx::Result<Vec<Followed>> {
    sqlx::query_as!(
        Followed,
        r#"
        -- timings of the followers: one step in the index for each timing, however many workflows have it
        WITH RECURSIVE followed (shard, cron, timezone) AS (
            SELECT s.shard, first.cron, first.timezone
              FROM watchdog_shards s
             CROSS JOIN LATERAL (SELECT l.cron, l.timezone FROM ledger l
                                  WHERE l.shard = s.shard AND l.watch_at IS NULL AND l.cron IS NOT NULL
                                  ORDER BY l.cron, l.timezone
                                  LIMIT 1) AS first
             WHERE $1::smallint IS NULL OR s.shard = $1
            UNION ALL
            SELECT f.shard, next.cron, next.timezone
              FROM followed f
             CROSS JOIN LATERAL (SELECT l.cron, l.timezone FROM ledger l
                                  WHERE l.shard = f.shard AND l.watch_at IS NULL AND l.cron IS NOT NULL
                                    AND (l.cron, l.timezone) > (f.cron, f.timezone)
                                  ORDER BY l.cron, l.timezone
                                  LIMIT 1) AS next
        )
        SELECT f.shard AS "shard!", s.decided_through AS "decided_through!", f.cron AS "cron!", f.timezone AS "timezone!"
          FROM followed f JOIN watchdog_shards s ON s.shard = f.shard
        "#,
        shard,
    )
    .fetch_all(db)
    .await
}

/// Returns the earliest time that a follower may have to decide after the end of its shard; `None` if it is after
/// `until`, so that all followers are decided up to there.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_undecided_since(db: &mut PgConnection, until: DateTime<Utc>) -> sqlx::Result<Option<DateTime<Utc>>> {
    let followed = list_followed(db, None).await?;
    let behind = followed.iter().filter(|timing| timing.decided_through < until);
    Ok(behind.filter_map(|timing| timing.next_time(timing.decided_through)).filter(|time| *time < until).min())
}
