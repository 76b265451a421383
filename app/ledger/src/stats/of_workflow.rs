//! Step 7 of 7: the statistics of one workflow, from its own rows.
//!
//! Times and runs that are more than a week older than the span are left out, unless a run was accepted within it: else a
//! read would pass over the complete history of the workflow.

use chrono::TimeDelta;
use db::PgConnection;
use workflows::id::first_id_of;
use workflows::reasons::ReasonCode;

use super::figures::{Delay, Executions, Scope};
use crate::occurrences::Decision;

/// How much older than the span a time may be that was decided, or a run that ended, within it.
const EARLIER: TimeDelta = TimeDelta::days(7);

/// Selects figures of the times of one workflow that were decided in the span, by their columns.
macro_rules! select_decided {
    ($row:ident, $comment:tt, $columns:tt, $end:tt, $workflow:expr, $scope:expr) => {
        sqlx::query_as!(
            $row,
            $comment
                + "SELECT "
                + $columns
                + r#"
          FROM (SELECT decision, lateness_s, decided_on FROM occurrences
                 WHERE workflow_id = $1 AND scheduled_time >= $4
                UNION ALL
                SELECT o.decision, o.lateness_s, o.decided_on
                  FROM (SELECT DISTINCT scheduled_time FROM runs
                         WHERE workflow_id = $1 AND id >= $5 AND scheduled_time < $4) AS r
                  JOIN occurrences o ON o.workflow_id = $1 AND o.scheduled_time = r.scheduled_time) AS o
         WHERE o.decided_on >= $2 AND o.decided_on <= $3 "#
                + $end,
            $workflow,
            $scope.from,
            $scope.to,
            $scope.from - EARLIER,
            first_id_of($scope.from),
        )
    };
}

pub(super) async fn read_delay(db: &mut PgConnection, workflow: i64, scope: Scope) -> sqlx::Result<Delay> {
    select_decided!(
        Delay,
        "-- delay of the fires of a workflow\n",
        r#"count(*) AS "count!",
               coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY o.lateness_s), 0) AS "p50_s!",
               coalesce(percentile_cont(0.95) WITHIN GROUP (ORDER BY o.lateness_s), 0) AS "p95_s!",
               coalesce(max(o.lateness_s), 0) AS "max_s!""#,
        "AND o.decision = 'fired'",
        workflow,
        scope
    )
    .fetch_one(db)
    .await
}

struct Decided {
    decision: Decision,
    count: i64,
}

pub(super) async fn read_decisions(
    db: &mut PgConnection,
    workflow: i64,
    scope: Scope,
) -> sqlx::Result<Vec<(Decision, i64)>> {
    let rows = select_decided!(
        Decided,
        "-- occurrences of a workflow by decision\n",
        r#"o.decision AS "decision!: Decision", count(*) AS "count!""#,
        "GROUP BY o.decision",
        workflow,
        scope
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| (row.decision, row.count)).collect())
}

pub(super) async fn read_ends(db: &mut PgConnection, workflow: i64, scope: Scope) -> sqlx::Result<Executions> {
    sqlx::query_as!(
        Executions,
        r#"
        -- executions of a workflow that ended
        SELECT count(*) AS "total!",
               count(*) FILTER (WHERE r.state = 'succeeded') AS "successful!",
               count(*) FILTER (WHERE r.state = 'abandoned' AND r.error IS DISTINCT FROM $5) AS "lost!",
               coalesce(sum(r.handed_over), 0) AS "handed_over!",
               count(*) FILTER (WHERE r.state = 'abandoned' AND r.error = $5) AS "cut_off!",
               coalesce(sum(r.recoveries), 0) AS "recovery_attempts!",
               count(*) FILTER (WHERE r.recoveries > 0 AND r.state = 'succeeded') AS "recovered!",
               count(*) FILTER (WHERE r.recoveries > 0 AND r.state IN ('failed', 'timed_out', 'cancelled')) AS "recovery_failed!",
               count(*) FILTER (WHERE r.recoveries > 0 AND r.state = 'abandoned') AS "recovery_abandoned!"
          FROM runs r
         WHERE r.workflow_id = $1 AND r.id >= $4 AND r.finished_on >= $2 AND r.finished_on <= $3
        "#,
        workflow,
        scope.from,
        scope.to,
        first_id_of(scope.from - EARLIER),
        ReasonCode::CutOffByShutdown.as_str(),
    )
    .fetch_one(db)
    .await
}
