//! Step 7 of 7, seen from step 3: the gauges of the app's ledger.
//!
//! The publisher reports them because it runs separately from the app: then the alarm also works if the app is down.

use db::PgPool;
use schedule::delivery::GRACE;

/// Due times of the last hour by decision.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Decisions {
    /// Times decided as missed that have not run since.
    pub(crate) missed: i64,
    /// Times caught up.
    pub(crate) caught_up: i64,
    /// Times abandoned without a run.
    pub(crate) not_run: i64,
}

pub(super) async fn lag_secs(pool: &PgPool) -> sqlx::Result<f64> {
    let secs = sqlx::query_scalar!(
        r#"
        -- ledger lag: the watchdog decides a time when its grace is over, so the grace is no lag
        SELECT EXTRACT(EPOCH FROM cronbox_now() - make_interval(secs => $1) - LEAST(
                   (SELECT min(watch_at) FROM ledger WHERE watch_at IS NOT NULL),
                   -- no due time of a follower after the end of its shard is older than this
                   (SELECT min(s.decided_through)
                      FROM watchdog_shards s
                     WHERE EXISTS (SELECT FROM ledger l
                                    WHERE l.shard = s.shard AND l.watch_at IS NULL AND l.cron IS NOT NULL))))::float8
        "#,
        GRACE.as_seconds_f64(),
    )
    .fetch_one(pool)
    .await?;
    Ok(secs.unwrap_or_default().max(0.0))
}

pub(super) async fn count_decisions(pool: &PgPool) -> sqlx::Result<Decisions> {
    let row = sqlx::query!(
        r#"
        -- decisions of the last hour that are not an ordinary fire: named once more in the condition, which is that of
        -- the index, so that ordinary fires are not read
        SELECT count(*) FILTER (WHERE decision = 'missed') AS "missed!",
               count(*) FILTER (WHERE decision = 'caught_up') AS "caught_up!",
               count(*) FILTER (WHERE decision = 'abandoned' AND run_id IS NULL) AS "not_run!"
          FROM occurrences
         WHERE decided_on > (SELECT cronbox_now()) - INTERVAL '1 hour'
           AND decision IN ('missed', 'caught_up', 'abandoned')
        "#
    )
    .fetch_one(pool)
    .await?;
    Ok(Decisions { missed: row.missed, caught_up: row.caught_up, not_run: row.not_run })
}

pub(super) async fn runs_abandoned(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- runs abandoned in the last hour: without those that a shutdown interrupted, or each deployment would raise an
        -- alarm
        SELECT count(*) AS "count!"
          FROM runs
         WHERE state = 'abandoned' AND finished_on > (SELECT cronbox_now()) - INTERVAL '1 hour'
           AND error IS DISTINCT FROM 'cut_off_by_shutdown'
        "#
    )
    .fetch_one(pool)
    .await
}

pub(super) async fn runs_failed(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- runs failed in the last hour: from what was counted by minute, of which both tables have a part; team 0 of the
        -- sums is all teams
        SELECT COALESCE(sum(e.runs), 0)::bigint AS "count!"
          FROM (SELECT runs FROM run_end_minutes
                 WHERE minute > (SELECT cronbox_now()) - INTERVAL '1 hour' AND state IN ('failed', 'timed_out')
                UNION ALL
                SELECT runs FROM run_end_sums
                 WHERE team_id = 0 AND minute > (SELECT cronbox_now()) - INTERVAL '1 hour'
                   AND state IN ('failed', 'timed_out')) AS e
        "#
    )
    .fetch_one(pool)
    .await
}

pub(super) async fn times_skipped_by_overlap(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- times skipped by overlap in the last hour: as the failed runs. A count of a minute is negative if its decisions
        -- were changed
        SELECT GREATEST(COALESCE(sum(d.times), 0), 0)::bigint AS "count!"
          FROM (SELECT times FROM decision_minutes
                 WHERE minute > (SELECT cronbox_now()) - INTERVAL '1 hour' AND decision = 'skipped_overlap'
                UNION ALL
                SELECT times FROM decision_sums
                 WHERE team_id = 0 AND minute > (SELECT cronbox_now()) - INTERVAL '1 hour'
                   AND decision = 'skipped_overlap') AS d
        "#
    )
    .fetch_one(pool)
    .await
}

pub(super) async fn auto_paused(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- auto paused: the condition is that of the index
        SELECT count(*) AS "count!"
          FROM workflows
         WHERE paused_by = 'cronbox'
        "#
    )
    .fetch_one(pool)
    .await
}

pub(super) async fn messages_failed(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- messages failed in the last hour: a retry that succeeds takes its message out of the count
        SELECT count(*) AS "count!"
          FROM notification_messages
         WHERE state = 'failed' AND failed_on > (SELECT cronbox_now()) - INTERVAL '1 hour'
        "#
    )
    .fetch_one(pool)
    .await
}

pub(super) async fn runs_waiting_secs(pool: &PgPool) -> sqlx::Result<f64> {
    let secs = sqlx::query_scalar!(
        r#"
        -- runs waiting: only runs that a free executor would start now, without those that wait for an earlier run. What a
        -- freeze stops and a team's limit holds back is left out: it would hide the runs of all others. The lists of
        -- both are read once, and a run looks in them without reading a row
        WITH frozen AS MATERIALIZED (
            SELECT team_id FROM freezes WHERE ends_on > cronbox_now() AND starts_on <= cronbox_now()
        ), full_teams AS MATERIALIZED (
            -- as a claim counts them. The default of the operator is a setting of the app, which is not known here
            SELECT l.team_id
              FROM team_limits AS l
             WHERE l.running_runs > 0
               AND l.running_runs <= (SELECT count(*)
                                        FROM (SELECT
                                                FROM runs AS counted
                                               WHERE counted.state = 'running' AND counted.team_id = l.team_id
                                                 AND counted.lease_until > (SELECT cronbox_now())
                                               ORDER BY counted.started_on
                                               LIMIT l.running_runs) AS running)
        )
        SELECT EXTRACT(EPOCH FROM cronbox_now() - GREATEST(r.run_after, r.created_on))::float8 AS "secs!"
          FROM runs AS r
          JOIN workflows AS w ON w.id = r.workflow_id
         WHERE r.state = 'accepted'
           AND r.run_after <= cronbox_now()
           AND (r.handed_over_until IS NULL OR r.handed_over_until >= cronbox_now())
           AND (r.trigger NOT IN ('schedule', 'catch_up')
                OR (NOT EXISTS (SELECT FROM frozen WHERE team_id IS NULL)
                    AND r.team_id NOT IN (SELECT team_id FROM frozen WHERE team_id IS NOT NULL)))
           AND r.team_id NOT IN (SELECT team_id FROM full_teams)
           AND w.state = 'active'
           AND NOT EXISTS (SELECT FROM runs AS other WHERE other.workflow_id = r.workflow_id AND other.state = 'running')
         ORDER BY r.run_after
         LIMIT 1
        "#
    )
    .fetch_optional(pool)
    .await?;
    Ok(secs.unwrap_or_default().max(0.0))
}

pub(super) async fn count_disagreements(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- count_disagreements
        SELECT count(*) AS "count!" FROM fire_disagreements WHERE seen_on > cronbox_now() - INTERVAL '1 hour'
        "#
    )
    .fetch_one(pool)
    .await
}
