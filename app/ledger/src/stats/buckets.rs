//! Step 7 of 7: what was counted by minute, by buckets of time: what a curve shows.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;

use super::figures::Scope;
use crate::occurrences::Decision;

/// The counts of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Times decided in it.
    pub decisions: Vec<(Decision, i64)>,
    /// Runs that ended in it.
    pub ended: i64,
    /// Of these, those that succeeded.
    pub succeeded: i64,
}

impl Bucket {
    /// How many times have a decision.
    #[must_use]
    pub fn decision_count(&self, decision: Decision) -> i64 {
        self.decisions.iter().filter(|(one, _)| *one == decision).map(|(_, times)| times).sum()
    }
}

/// Reads the buckets of a team, or of all teams, by their beginning: only those in which something happened. Both statements
/// need the same snapshot.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_buckets(
    db: &mut PgConnection,
    scope: Scope,
    bucket: TimeDelta,
) -> sqlx::Result<BTreeMap<DateTime<Utc>, Bucket>> {
    let mut buckets: BTreeMap<DateTime<Utc>, Bucket> = BTreeMap::new();
    for row in read_decisions(db, scope, bucket).await? {
        buckets.entry(beginning(scope, bucket, row.nth)).or_default().decisions.push((row.decision, row.times));
    }
    for row in read_ends(db, scope, bucket).await? {
        let of = buckets.entry(beginning(scope, bucket, row.nth)).or_default();
        (of.ended, of.succeeded) = (row.ended, row.succeeded);
    }
    Ok(buckets)
}

fn beginning(scope: Scope, bucket: TimeDelta, nth: i32) -> DateTime<Utc> {
    scope.from + bucket * nth
}

struct Decided {
    nth: i32,
    decision: Decision,
    times: i64,
}

async fn read_decisions(db: &mut PgConnection, scope: Scope, bucket: TimeDelta) -> sqlx::Result<Vec<Decided>> {
    sqlx::query_as!(
        Decided,
        r#"
        -- decisions by bucket: team 0 of the sums is all teams
        SELECT (EXTRACT(EPOCH FROM c.minute - $1::timestamptz)::bigint / $4)::integer AS "nth!",
               c.decision AS "decision!: Decision", sum(c.times)::bigint AS "times!"
          FROM (SELECT minute, decision, times FROM decision_minutes
                 WHERE minute >= $1 AND minute <= $2 AND ($3::bigint IS NULL OR team_id = $3)
                UNION ALL
                SELECT minute, decision, times FROM decision_sums
                 WHERE minute >= $1 AND minute <= $2 AND team_id = COALESCE($3, 0)) AS c
         GROUP BY 1, 2
        "#,
        scope.from,
        scope.to,
        scope.team_id,
        bucket.num_seconds().max(1),
    )
    .fetch_all(db)
    .await
}

struct Ended {
    nth: i32,
    ended: i64,
    succeeded: i64,
}

async fn read_ends(db: &mut PgConnection, scope: Scope, bucket: TimeDelta) -> sqlx::Result<Vec<Ended>> {
    sqlx::query_as!(
        Ended,
        r#"
        -- ends of runs by bucket: team 0 of the sums is all teams
        SELECT (EXTRACT(EPOCH FROM e.minute - $1::timestamptz)::bigint / $4)::integer AS "nth!",
               sum(e.runs)::bigint AS "ended!",
               COALESCE(sum(e.runs) FILTER (WHERE e.state = 'succeeded'), 0)::bigint AS "succeeded!"
          FROM (SELECT minute, state, runs FROM run_end_minutes
                 WHERE minute >= $1 AND minute <= $2 AND ($3::bigint IS NULL OR team_id = $3)
                UNION ALL
                SELECT minute, state, runs FROM run_end_sums
                 WHERE minute >= $1 AND minute <= $2 AND team_id = COALESCE($3, 0)) AS e
         GROUP BY 1
        "#,
        scope.from,
        scope.to,
        scope.team_id,
        bucket.num_seconds().max(1),
    )
    .fetch_all(db)
    .await
}
