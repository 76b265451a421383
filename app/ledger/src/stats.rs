//! Step 7 of 7: the statistics of the ledger. Normally every number that an alarm checks is zero.
//!
//! Triggers count each decision and each end of a run by minute and team (migration 48), so that a read of a team or of
//! all teams reads minutes, not rows of the ledger. The statistics of one workflow read its rows.

mod buckets;
mod counted;
mod figures;
mod minutes;
mod of_workflow;
mod present;
mod sums;

use chrono::{DateTime, Utc};
use db::PgConnection;

pub use buckets::{Bucket, read_buckets};
pub use figures::{Delay, Executions, Scope, Stats};
pub use minutes::{MinuteCount, read_decision_minutes, read_end_minutes};
pub use present::{Present, read_present};
pub use sums::{JOB, Pass, add_up_minutes};

/// Reads the statistics. All statements need the same snapshot.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_stats(db: &mut PgConnection, scope: Scope) -> sqlx::Result<Stats> {
    let Live { runs, oldest } = live(db, scope).await?;
    let (delay, decisions, executions) = match scope.workflow_id {
        Some(workflow) => {
            let decisions = of_workflow::read_decisions(db, workflow, scope).await?;
            (
                of_workflow::read_delay(db, workflow, scope).await?,
                decisions,
                of_workflow::read_ends(db, workflow, scope).await?,
            )
        }
        None => {
            let counted = counted::read_decisions(db, scope).await?;
            (counted::delay_of(&counted), counted::sum_decisions(&counted), counted::read_ends(db, scope).await?)
        }
    };
    let watch_at = watch_at(db, scope).await?;
    Ok(Stats { delay, decisions, executions, live: runs, oldest_unresolved: oldest, watch_at })
}

/// Counts the runs of a team that instances execute now, without lost ones: as a claim counts them.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn count_running_runs(db: &mut PgConnection, team_id: i64) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- running runs of a team
        SELECT count(*) AS "runs!"
          FROM runs
         WHERE state = 'running' AND team_id = $1 AND lease_until > (SELECT cronbox_now())
        "#,
        team_id,
    )
    .fetch_one(db)
    .await
}

/// Selects the live runs by a comment, a condition of the scope, and its argument.
macro_rules! select_live {
    ($comment:tt, $scope:tt, $($arguments:tt)*) => {
        sqlx::query_as!(
            Live,
            $comment
                + r#"
        SELECT count(*) AS "runs!", min(r.scheduled_time) FILTER (WHERE r.trigger IN ('schedule', 'catch_up')) AS oldest
          FROM runs r
         WHERE r.state IN ('accepted', 'queued', 'running') "#
                + $scope,
            $($arguments)*
        )
    };
}

/// Runs that have not ended.
struct Live {
    runs: i64,
    oldest: Option<DateTime<Utc>>,
}

async fn live(db: &mut PgConnection, scope: Scope) -> sqlx::Result<Live> {
    match (scope.workflow_id, scope.team_id) {
        (Some(workflow), _) => {
            select_live!("-- live runs of a workflow\n", "AND r.workflow_id = $1", workflow).fetch_one(db).await
        }
        (None, Some(team)) => select_live!("-- live runs of a team\n", "AND r.team_id = $1", team).fetch_one(db).await,
        (None, None) => select_live!("-- live runs\n", "",).fetch_one(db).await,
    }
}

/// A team's workflows are searched among the first 1,000 of each shard, because the table has no order by team. If none of
/// them is the team's, the answer is the time of the last that was read: no time of the team before it is undecided.
async fn watch_at(db: &mut PgConnection, scope: Scope) -> sqlx::Result<Option<DateTime<Utc>>> {
    sqlx::query_scalar!(
        r#"
        -- the earliest time until now that the watchdog still has to decide
        SELECT LEAST(
                   (SELECT min(of_shard.watch_at)
                      FROM watchdog_shards s
                     CROSS JOIN LATERAL (
                        SELECT COALESCE(min(e.watch_at) FILTER (WHERE $1::bigint IS NULL
                                            OR (SELECT w.team_id FROM workflows w WHERE w.id = e.workflow_id) = $1),
                                        CASE WHEN count(*) = 1000 THEN max(e.watch_at) END) AS watch_at
                          FROM (SELECT l.watch_at, l.workflow_id
                                  FROM ledger l
                                 WHERE l.shard = s.shard AND l.watch_at <= $3 AND ($2::bigint IS NULL OR l.workflow_id = $2)
                                 ORDER BY l.watch_at
                                 LIMIT CASE WHEN $1::bigint IS NULL THEN 1 ELSE 1000 END) AS e) AS of_shard),
                   -- no due time of a follower after the end of its shard is older than this
                   (SELECT min(s.decided_through)
                      FROM watchdog_shards s
                     WHERE ($2::bigint IS NULL OR s.shard = $2 % 8)
                       -- not EXISTS, which becomes a join that reads the whole table
                       AND (SELECT TRUE FROM ledger l
                             WHERE l.shard = s.shard AND l.watch_at IS NULL AND l.cron IS NOT NULL
                             LIMIT 1) IS NOT NULL))
        "#,
        scope.team_id,
        scope.workflow_id,
        scope.to,
    )
    .fetch_one(db)
    .await
}
