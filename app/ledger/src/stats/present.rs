//! Step 7 of 7: the present state of all teams together: their workflows and the runs that have not ended.

use db::PgConnection;

/// How many runs are counted that wait for an executor: in an outage there may be millions.
const WAITING_AT_MOST: i64 = 10_000;

/// The present state of all teams.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Present {
    /// The workflows.
    pub workflows: WorkflowCounts,
    /// The runs that have not ended.
    pub runs: RunCounts,
    /// The runs that wait for an executor.
    pub waiting: WaitingCounts,
}

/// Workflows that are not archived, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkflowCounts {
    /// Active ones.
    pub active: i64,
    /// Those that a client has paused.
    pub paused_by_client: i64,
    /// Those that cronbox has paused, because their runs failed.
    pub paused_by_cronbox: i64,
}

/// Runs that have not ended, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Accepted ones.
    pub accepted: i64,
    /// Those that wait for a slot of their workflow.
    pub queued: i64,
    /// Running ones.
    pub running: i64,
}

/// Runs that a free executor would start now, by the time for which they have waited; of more than 10,000 the oldest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WaitingCounts {
    /// Less than a minute.
    pub under_1m: i64,
    /// Less than five minutes.
    pub under_5m: i64,
    /// Less than an hour.
    pub under_1h: i64,
    /// An hour or longer.
    pub over_1h: i64,
    /// How many seconds the oldest one has waited; 0 = none waits.
    pub oldest_secs: f64,
}

/// Reads the present state.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement.
pub async fn read_present(db: &mut PgConnection) -> sqlx::Result<Present> {
    let workflows = count_workflows(db).await?;
    let runs = count_runs(db).await?;
    Ok(Present { workflows, runs, waiting: count_waiting(db).await? })
}

async fn count_workflows(db: &mut PgConnection) -> sqlx::Result<WorkflowCounts> {
    sqlx::query_as!(
        WorkflowCounts,
        r#"
        -- count_workflows: what each team has is counted by a trigger, and the paused ones are entries of an index, so that
        -- no row of a workflow is read
        SELECT (COALESCE(u.workflows, 0) - p.paused)::bigint AS "active!",
               (p.paused - p.by_cronbox)::bigint AS "paused_by_client!",
               p.by_cronbox AS "paused_by_cronbox!"
          FROM (SELECT sum(workflows)::bigint AS workflows FROM team_usage) AS u,
               (SELECT COALESCE(sum(of_team.paused), 0)::bigint AS paused,
                       COALESCE(sum(of_team.by_cronbox), 0)::bigint AS by_cronbox
                  FROM teams AS t
                 CROSS JOIN LATERAL (SELECT count(*) AS paused,
                                            count(*) FILTER (WHERE w.paused_by = 'cronbox') AS by_cronbox
                                       FROM workflows AS w
                                      WHERE w.team_id = t.id AND w.state = 'paused') AS of_team) AS p
        "#
    )
    .fetch_one(db)
    .await
}

async fn count_runs(db: &mut PgConnection) -> sqlx::Result<RunCounts> {
    sqlx::query_as!(
        RunCounts,
        r#"
        -- count_runs: those that have not ended
        SELECT count(*) FILTER (WHERE state = 'accepted') AS "accepted!",
               count(*) FILTER (WHERE state = 'queued') AS "queued!",
               count(*) FILTER (WHERE state = 'running') AS "running!"
          FROM runs
         WHERE state IN ('accepted', 'queued', 'running')
        "#
    )
    .fetch_one(db)
    .await
}

async fn count_waiting(db: &mut PgConnection) -> sqlx::Result<WaitingCounts> {
    sqlx::query_as!(
        WaitingCounts,
        r#"
        -- count_waiting: the runs of the publisher's gauge `runs waiting`, without those that wait for an earlier run, are
        -- stopped by a freeze, or are held back by a limit of their team
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
        SELECT count(*) FILTER (WHERE age < 60) AS "under_1m!",
               count(*) FILTER (WHERE age >= 60 AND age < 300) AS "under_5m!",
               count(*) FILTER (WHERE age >= 300 AND age < 3600) AS "under_1h!",
               count(*) FILTER (WHERE age >= 3600) AS "over_1h!",
               GREATEST(max(age), 0)::float8 AS "oldest_secs!"
          FROM (SELECT EXTRACT(EPOCH FROM cronbox_now() - GREATEST(r.run_after, r.created_on)) AS age
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
                   AND NOT EXISTS (SELECT FROM runs AS other
                                    WHERE other.workflow_id = r.workflow_id AND other.state = 'running')
                 ORDER BY r.run_after
                 LIMIT $1) AS waiting
        "#,
        WAITING_AT_MOST,
    )
    .fetch_one(db)
    .await
}
