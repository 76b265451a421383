//! Step 7 of 7: the statistics of the ledger. Normally every number that an alarm checks is zero.

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::delivery::GRACE;
use workflows::reasons::ReasonCode;

use crate::occurrences::Decision;

/// Which workflows, and which span.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Only workflows of this team; `None` = all.
    pub team_id: Option<i64>,
    /// Only this workflow; `None` = all.
    pub workflow_id: Option<i64>,
    /// Counts decisions and ends of runs from this time on.
    pub from: DateTime<Utc>,
    /// Counts up to this time, which is now.
    pub to: DateTime<Utc>,
}

/// How long fires took from their scheduled time to their decision, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Delay {
    /// Number of fires.
    pub count: i64,
    /// The median.
    pub p50_s: f64,
    /// The 95th percentile.
    pub p95_s: f64,
    /// The maximum.
    pub max_s: i64,
}

/// Runs that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Executions {
    /// All of them.
    pub total: i64,
    /// Succeeded.
    pub successful: i64,
    /// Abandoned, but not by a shutdown: it is unknown whether their action completed.
    pub lost: i64,
    /// How often a run was handed over, at a shutdown or because the reply to its claim was lost.
    pub handed_over: i64,
    /// Abandoned because a shutdown interrupted them and `on_lost` is `abandon`.
    pub cut_off: i64,
    /// How often a run continued after its instance was lost.
    pub recovery_attempts: i64,
    /// Of the runs that continued, those that succeeded.
    pub recovered: i64,
    /// Of the runs that continued, those that failed, timed out or were cancelled.
    pub recovery_failed: i64,
    /// Of the runs that continued, those that were abandoned.
    pub recovery_abandoned: i64,
}

/// The statistics of the ledger.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// The delay of fires.
    pub delay: Delay,
    /// Number of due times by decision; a decision that no time has is left out.
    pub decisions: Vec<(Decision, i64)>,
    /// The results of runs.
    pub executions: Executions,
    /// Runs that wait or execute.
    pub live: i64,
    /// The scheduled time of the oldest occurrence whose run has not ended.
    pub oldest_unresolved: Option<DateTime<Utc>>,
    /// The earliest time that the watchdog still has to decide; normally it is in the future.
    pub watch_at: Option<DateTime<Utc>>,
}

impl Stats {
    /// Seconds by which the watchdog is behind; 0 while no undecided time is older than its grace.
    #[must_use]
    pub fn lag_s(&self, now: DateTime<Utc>) -> i64 {
        self.watch_at.map_or(0, |watch_at| (now - GRACE - watch_at).num_seconds().max(0))
    }

    /// How many times have this decision.
    #[must_use]
    pub fn decision_count(&self, decision: Decision) -> i64 {
        self.decisions.iter().find(|(other, _)| *other == decision).map_or(0, |(_, count)| *count)
    }
}

/// Reads the statistics.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_stats(db: &mut PgConnection, scope: Scope) -> sqlx::Result<Stats> {
    Ok(Stats {
        delay: delay(db, scope).await?,
        decisions: decisions(db, scope).await?,
        executions: executions(db, scope).await?,
        watch_at: watch_at(db, scope).await?,
        ..live(db, scope).await?
    })
}

async fn delay(db: &mut PgConnection, scope: Scope) -> sqlx::Result<Delay> {
    sqlx::query_as!(
        Delay,
        r#"
        -- delay of fires
        SELECT count(*) AS "count!",
               coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY o.lateness_s), 0) AS "p50_s!",
               coalesce(percentile_cont(0.95) WITHIN GROUP (ORDER BY o.lateness_s), 0) AS "p95_s!",
               coalesce(max(o.lateness_s), 0) AS "max_s!"
          FROM occurrences o JOIN workflows w ON w.id = o.workflow_id
         WHERE o.decision = 'fired'
           AND o.decided_on >= $1 AND o.decided_on <= $2
           AND ($3::bigint IS NULL OR w.team_id = $3)
           AND ($4::bigint IS NULL OR o.workflow_id = $4)
        "#,
        scope.from,
        scope.to,
        scope.team_id,
        scope.workflow_id,
    )
    .fetch_one(db)
    .await
}

async fn decisions(db: &mut PgConnection, scope: Scope) -> sqlx::Result<Vec<(Decision, i64)>> {
    let rows = sqlx::query!(
        r#"
        -- occurrences by decision
        SELECT o.decision AS "decision: Decision", count(*) AS "count!"
          FROM occurrences o JOIN workflows w ON w.id = o.workflow_id
         WHERE o.decided_on >= $1 AND o.decided_on <= $2
           AND ($3::bigint IS NULL OR w.team_id = $3)
           AND ($4::bigint IS NULL OR o.workflow_id = $4)
         GROUP BY o.decision
        "#,
        scope.from,
        scope.to,
        scope.team_id,
        scope.workflow_id,
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| (row.decision, row.count)).collect())
}

async fn executions(db: &mut PgConnection, scope: Scope) -> sqlx::Result<Executions> {
    sqlx::query_as!(
        Executions,
        r#"
        -- executions that ended
        SELECT count(*) AS "total!",
               count(*) FILTER (WHERE r.state = 'succeeded') AS "successful!",
               count(*) FILTER (WHERE r.state = 'abandoned' AND r.error IS DISTINCT FROM $5) AS "lost!",
               coalesce(sum(r.handed_over), 0) AS "handed_over!",
               count(*) FILTER (WHERE r.state = 'abandoned' AND r.error = $5) AS "cut_off!",
               coalesce(sum(r.recoveries), 0) AS "recovery_attempts!",
               count(*) FILTER (WHERE r.recoveries > 0 AND r.state = 'succeeded') AS "recovered!",
               count(*) FILTER (WHERE r.recoveries > 0 AND r.state IN ('failed', 'timed_out', 'cancelled')) AS "recovery_failed!",
               count(*) FILTER (WHERE r.recoveries > 0 AND r.state = 'abandoned') AS "recovery_abandoned!"
          FROM runs r JOIN workflows w ON w.id = r.workflow_id
         WHERE r.finished_on >= $1 AND r.finished_on <= $2
           AND ($3::bigint IS NULL OR w.team_id = $3)
           AND ($4::bigint IS NULL OR r.workflow_id = $4)
        "#,
        scope.from,
        scope.to,
        scope.team_id,
        scope.workflow_id,
        ReasonCode::CutOffByShutdown.as_str(),
    )
    .fetch_one(db)
    .await
}

async fn live(db: &mut PgConnection, scope: Scope) -> sqlx::Result<Stats> {
    let row = sqlx::query!(
        r#"
        -- runs that have not ended, and the oldest occurrence among them
        SELECT count(*) AS "live!", min(r.scheduled_time) FILTER (WHERE r.trigger IN ('schedule', 'catch_up')) AS oldest
          FROM runs r JOIN workflows w ON w.id = r.workflow_id
         WHERE r.state IN ('accepted', 'queued', 'running')
           AND ($1::bigint IS NULL OR w.team_id = $1)
           AND ($2::bigint IS NULL OR r.workflow_id = $2)
        "#,
        scope.team_id,
        scope.workflow_id,
    )
    .fetch_one(db)
    .await?;
    Ok(Stats { live: row.live, oldest_unresolved: row.oldest, ..Stats::default() })
}

async fn watch_at(db: &mut PgConnection, scope: Scope) -> sqlx::Result<Option<DateTime<Utc>>> {
    sqlx::query_scalar!(
        r#"
        -- the earliest time that the watchdog still has to decide
        SELECT LEAST(
                   (SELECT min(l.watch_at)
                      FROM ledger l JOIN workflows w ON w.id = l.workflow_id
                     WHERE l.watch_at IS NOT NULL
                       AND ($1::bigint IS NULL OR w.team_id = $1)
                       AND ($2::bigint IS NULL OR w.id = $2)),
                   -- no due time of a follower after the end of its shard is older than this
                   (SELECT min(s.decided_through)
                      FROM watchdog_shards s
                     WHERE ($2::bigint IS NULL OR s.shard = $2 % 8)
                       AND EXISTS (SELECT FROM ledger l
                                    WHERE l.shard = s.shard AND l.watch_at IS NULL AND l.cron IS NOT NULL)))
        "#,
        scope.team_id,
        scope.workflow_id,
    )
    .fetch_one(db)
    .await
}
