//! Step 7 of 7: the statistics of a team or of all teams, from what was counted by minute.
//!
//! The newest minutes have a row for each server process that counted; the job `statistics` moves the older ones to the
//! sums, where team 0 is all teams together. So both tables have parts of the same counts.

use db::PgConnection;

use super::figures::{Delay, Executions, Scope};
use crate::occurrences::Decision;

/// How many times have a decision and about a delay.
pub(super) struct Counted {
    decision: Decision,
    /// Seconds, rounded down to three binary digits.
    late_s: i64,
    times: i64,
    late_max_s: i64,
}

/// Selects what was counted by a comment, the rows of both tables, and further arguments.
macro_rules! select_decisions {
    ($comment:tt, $minutes:tt, $sums:tt, $scope:expr, $($arguments:tt)*) => {
        sqlx::query_as!(
            Counted,
            $comment
                + r#"
        SELECT c.decision AS "decision!: Decision", c.late_s AS "late_s!", sum(c.times)::bigint AS "times!",
               max(c.late_max_s) AS "late_max_s!"
          FROM (SELECT decision, late_s, times, late_max_s FROM decision_minutes WHERE minute >= $1 AND minute <= $2 "#
                + $minutes
                + r#"
                UNION ALL
                SELECT decision, late_s, times, late_max_s FROM decision_sums WHERE minute >= $1 AND minute <= $2 "#
                + $sums
                + r#") AS c
         GROUP BY c.decision, c.late_s
         ORDER BY c.decision, c.late_s
        "#,
            $scope.from,
            $scope.to,
            $($arguments)*
        )
    };
}

/// Reads how many times have each decision and delay.
pub(super) async fn read_decisions(db: &mut PgConnection, scope: Scope) -> sqlx::Result<Vec<Counted>> {
    match scope.team_id {
        Some(team) => {
            select_decisions!("-- decisions of a team\n", "AND team_id = $3", "AND team_id = $3", scope, team)
                .fetch_all(db)
                .await
        }
        None => select_decisions!("-- decisions of all teams\n", "", "AND team_id = 0", scope,).fetch_all(db).await,
    }
}

/// How many times have each decision.
pub(super) fn sum_decisions(counted: &[Counted]) -> Vec<(Decision, i64)> {
    let count = |decision| counted.iter().filter(|row| row.decision == decision).map(|row| row.times).sum();
    Decision::ALL.into_iter().map(|decision| (decision, count(decision))).filter(|(_, count)| *count > 0).collect()
}

/// The delay of fires. A percentile of 8 s or more is rounded up, by a quarter at most.
pub(super) fn delay_of(counted: &[Counted]) -> Delay {
    let fired = || counted.iter().filter(|row| row.decision == Decision::Fired && row.times > 0);
    let count: i64 = fired().map(|row| row.times).sum();
    let max_s = fired().map(|row| row.late_max_s).max().unwrap_or_default();
    let percentile = |percent: i64| {
        let rank = ((count * percent + 99) / 100).max(1);
        let mut passed = 0;
        let found = fired().find(|row| {
            passed += row.times;
            passed >= rank
        });
        found.map_or(0, |row| last_second_of(row.late_s).min(max_s))
    };
    Delay { count, p50_s: seconds(percentile(50)), p95_s: seconds(percentile(95)), max_s }
}

#[expect(clippy::cast_precision_loss, reason = "a delay of more than 2^53 s does not exist")]
fn seconds(delay: i64) -> f64 {
    delay as f64
}

/// The last second that is rounded down to this one: the rule of the function `rounded_lateness` in the database.
fn last_second_of(late_s: i64) -> i64 {
    let digits = i64::BITS - late_s.leading_zeros();
    late_s + (1 << digits.saturating_sub(3)) - 1
}

/// Selects the runs that ended by a comment, the rows of both tables, and further arguments.
macro_rules! select_ends {
    ($comment:tt, $minutes:tt, $sums:tt, $scope:expr, $($arguments:tt)*) => {
        sqlx::query_as!(
            Executions,
            $comment
                + r#"
        SELECT COALESCE(sum(e.runs), 0)::bigint AS "total!",
               COALESCE(sum(e.runs) FILTER (WHERE e.state = 'succeeded'), 0)::bigint AS "successful!",
               COALESCE(sum(e.runs - e.cut_off) FILTER (WHERE e.state = 'abandoned'), 0)::bigint AS "lost!",
               COALESCE(sum(e.handed_over), 0)::bigint AS "handed_over!",
               COALESCE(sum(e.cut_off) FILTER (WHERE e.state = 'abandoned'), 0)::bigint AS "cut_off!",
               COALESCE(sum(e.recoveries), 0)::bigint AS "recovery_attempts!",
               COALESCE(sum(e.recovered) FILTER (WHERE e.state = 'succeeded'), 0)::bigint AS "recovered!",
               COALESCE(sum(e.recovered) FILTER (WHERE e.state IN ('failed', 'timed_out', 'cancelled')), 0)::bigint
                   AS "recovery_failed!",
               COALESCE(sum(e.recovered) FILTER (WHERE e.state = 'abandoned'), 0)::bigint AS "recovery_abandoned!"
          FROM (SELECT state, runs, cut_off, handed_over, recoveries, recovered
                  FROM run_end_minutes WHERE minute >= $1 AND minute <= $2 "#
                + $minutes
                + r#"
                UNION ALL
                SELECT state, runs, cut_off, handed_over, recoveries, recovered
                  FROM run_end_sums WHERE minute >= $1 AND minute <= $2 "#
                + $sums
                + r#") AS e
        "#,
            $scope.from,
            $scope.to,
            $($arguments)*
        )
    };
}

/// Reads the results of the runs that ended.
pub(super) async fn read_ends(db: &mut PgConnection, scope: Scope) -> sqlx::Result<Executions> {
    match scope.team_id {
        Some(team) => {
            select_ends!("-- ends of runs of a team\n", "AND team_id = $3", "AND team_id = $3", scope, team)
                .fetch_one(db)
                .await
        }
        None => select_ends!("-- ends of runs of all teams\n", "", "AND team_id = 0", scope,).fetch_one(db).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fired(late_s: i64, times: i64, late_max_s: i64) -> Counted {
        Counted { decision: Decision::Fired, late_s, times, late_max_s }
    }

    #[test]
    fn percentiles_are_at_most_a_quarter_above() {
        let delay = delay_of(&[fired(0, 90, 0), fired(5, 4, 5), fired(32, 6, 40)]);
        assert_eq!(delay, Delay { count: 100, p50_s: 0.0, p95_s: 39.0, max_s: 40 });
        assert_eq!(delay_of(&[fired(32, 1, 34)]).p50_s.to_bits(), 34.0_f64.to_bits(), "never above the maximum");
        assert_eq!(delay_of(&[]), Delay::default());
    }

    #[test]
    fn a_rounded_second_stands_for_its_span() {
        for (late_s, last) in [(0, 0), (7, 7), (8, 9), (14, 15), (16, 19), (56, 63), (64, 79)] {
            assert_eq!(last_second_of(late_s), last, "{late_s}");
        }
    }
}
