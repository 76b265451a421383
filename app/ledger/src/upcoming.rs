//! Step 1 of 7: how many due times come, for all schedules of a team together.
//!
//! Many workflows have the same cron, so each cron is evaluated once. What is not known yet is not counted: edits, pauses and
//! the seconds by which a fire is spread.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use workflows::definition::spec::Timing;

/// The active schedules with the same timing.
#[derive(Clone, Debug)]
pub struct SameTiming {
    /// Their timing.
    pub timing: Timing,
    /// How many they are.
    pub workflows: i64,
}

/// Reads how many active schedules of a team, or of all teams, have each timing.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_timings(db: &mut PgConnection, team_id: Option<i64>) -> sqlx::Result<Vec<SameTiming>> {
    let rows = sqlx::query!(
        r#"
        -- active schedules by their timing
        SELECT cron_schedule AS "cron!", timezone, starts_at, ends_at, count(*) AS "workflows!"
          FROM workflows
         WHERE state = 'active' AND cron_schedule IS NOT NULL AND ($1::bigint IS NULL OR team_id = $1)
         GROUP BY cron_schedule, timezone, starts_at, ends_at
        "#,
        team_id,
    )
    .fetch_all(db)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| SameTiming {
            timing: Timing {
                cron: Some(row.cron),
                timezone: row.timezone,
                starts_at: row.starts_at,
                ends_at: row.ends_at,
            },
            workflows: row.workflows,
        })
        .collect())
}

/// How many times are computed at most: about a second of a processor.
pub const MOST_TIMES: usize = 500_000;

/// Counts the due times from `from` on, before `to`, by buckets that begin at `from`; only those with a due time. Returns `None` if
/// their timings name more than [`MOST_TIMES`]. Call it where a thread may be blocked.
#[must_use]
pub fn count_due_times(
    timings: &[SameTiming],
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    bucket: TimeDelta,
) -> Option<BTreeMap<DateTime<Utc>, i64>> {
    let (mut counts, mut computed) = (BTreeMap::new(), 0);
    for SameTiming { timing, workflows } in timings {
        let Some((cron, timezone)) = timing.parsed_now() else { continue };
        let mut after = timing.first_instant_after(from - TimeDelta::microseconds(1));
        while let Some(time) = cron.next_after(after, timezone).filter(|time| *time < to && timing.is_before_end(*time))
        {
            let bucket_start = from + bucket * bucket_of(time - from, bucket);
            *counts.entry(bucket_start).or_default() += workflows;
            after = time;
            computed += 1;
            if computed > MOST_TIMES {
                return None;
            }
        }
    }
    Some(counts)
}

fn bucket_of(since: TimeDelta, bucket: TimeDelta) -> i32 {
    i32::try_from(since.num_seconds() / bucket.num_seconds().max(1)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every(cron: &str, workflows: i64, ends_at: Option<&str>) -> SameTiming {
        let ends_at = ends_at.map(|time| time.parse().unwrap());
        let timing = Timing { cron: Some(cron.to_owned()), timezone: None, starts_at: None, ends_at };
        SameTiming { timing, workflows }
    }

    #[test]
    fn each_cron_counts_for_its_workflows() {
        let at = |time: &str| format!("2026-03-02T{time}:00Z").parse::<DateTime<Utc>>().unwrap();
        let timings = [
            every("0 * * * *", 3, None),
            every("*/10 * * * *", 1, Some("2026-03-02T09:20:00Z")),
            every("5 10 * * *", 7, None),
        ];
        let counts = count_due_times(&timings, at("09:00"), at("10:05"), TimeDelta::minutes(30)).unwrap();
        // 09:00 itself is in the span, 10:05 is not.
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), [(at("09:00"), 3 + 2), (at("10:00"), 3)]);
    }

    #[test]
    fn a_team_with_too_many_times_gets_no_count() {
        let from: DateTime<Utc> = "2026-03-02T09:00:00Z".parse().unwrap();
        let timings: Vec<_> = (0..400).map(|_| every("* * * * *", 1, None)).collect();
        let count = |hours| count_due_times(&timings, from, from + TimeDelta::hours(hours), TimeDelta::hours(1));
        assert!(count(48).is_none() && count(20).is_some());
    }
}
