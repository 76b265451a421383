//! Step 7 of 7: what became of the last runs of many workflows, for a page of them. The number of statements does not
//! grow with the workflows.
//!
//! Each statement reads the index of runs by workflow from its newest end, and no more rows of a workflow than it shows or
//! counts. The runs of the last days are read first: Postgres would begin to read each day for each workflow.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use uuid::Uuid;
use workflows::id::first_id_of;
use workflows::trigger::Trigger;

use super::RunState;

/// How many ended runs are shown of a workflow.
const RECENT: usize = 20;
/// How far back runs are counted.
const WEEK: TimeDelta = TimeDelta::days(7);

/// What became of the last runs of a workflow.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Its newest run that has not ended.
    pub live: Option<RunResult>,
    /// Its last ended runs, the newest first: at most 20.
    pub recent: Vec<RunResult>,
    /// How many of its runs failed or timed out since the last one that succeeded; in the order in which they ended.
    pub failures_in_a_row: i32,
    /// Its ended runs of a week.
    pub week: WeekOfRuns,
}

/// A run and what became of it.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The run.
    pub id: Uuid,
    /// The workflow.
    pub workflow_id: i64,
    /// What started it.
    pub trigger: Trigger,
    /// Its state.
    pub state: RunState,
    /// The scheduled time; `None` for a manual run.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// When it was accepted.
    pub created_on: DateTime<Utc>,
    /// When it ended.
    pub finished_on: Option<DateTime<Utc>>,
    /// How long it took.
    pub duration_ms: Option<i64>,
    /// Why it failed or ended early, in the words that the database stores.
    pub error: Option<String>,
}

/// The ended runs of a workflow that were accepted within a week: at most the newest 200.
#[derive(Clone, Copy, Debug, Default)]
pub struct WeekOfRuns {
    /// How many are counted.
    pub ended: i64,
    /// Of these, those that succeeded.
    pub succeeded: i64,
    /// 95 of 100 took at most this long.
    pub p95_duration_ms: Option<i64>,
}

impl Results {
    /// The newest run: one that has not ended, or the last that has.
    #[must_use]
    pub fn last_run(&self) -> Option<&RunResult> {
        self.live.iter().chain(self.recent.first()).max_by_key(|run| run.id)
    }
}

/// Reads the results of workflows that the caller may see. All statements need the same snapshot.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_results(
    db: &mut PgConnection,
    workflows: &[i64],
    now: DateTime<Utc>,
) -> sqlx::Result<HashMap<i64, Results>> {
    let week_began = first_id_of(now - WEEK);
    let mut results: HashMap<i64, Results> = workflows.iter().map(|id| (*id, Results::default())).collect();
    for run in read_live(db, workflows).await? {
        let workflow = run.workflow_id;
        results.entry(workflow).or_default().live = Some(run);
    }
    for counted in count_since(db, workflows, week_began).await? {
        results.entry(counted.workflow_id).or_default().week = counted.week();
    }
    for failing in read_streaks(db, workflows).await? {
        results.entry(failing.workflow_id).or_default().failures_in_a_row = failing.failures;
    }
    read_recent(db, workflows, week_began, &mut results).await?;
    let recent_of = |id: &i64| results.get(id).map_or(0, |results| results.recent.len());
    let rare: Vec<i64> = workflows.iter().copied().filter(|id| recent_of(id) < RECENT).collect();
    if !rare.is_empty() {
        read_recent(db, &rare, Uuid::nil(), &mut results).await?;
    }
    Ok(results)
}

/// Reads the last ended runs from an id on. What is known already is replaced.
async fn read_recent(
    db: &mut PgConnection,
    workflows: &[i64],
    low: Uuid,
    results: &mut HashMap<i64, Results>,
) -> sqlx::Result<()> {
    for id in workflows {
        results.entry(*id).or_default().recent.clear();
    }
    for run in list_ended(db, workflows, low).await? {
        results.entry(run.workflow_id).or_default().recent.push(run);
    }
    Ok(())
}

async fn list_ended(db: &mut PgConnection, workflows: &[i64], low: Uuid) -> sqlx::Result<Vec<RunResult>> {
    sqlx::query_as!(
        RunResult,
        r#"
        -- the last ended runs of many workflows, the newest of each first
        SELECT r.id AS "id!", r.workflow_id AS "workflow_id!", r.trigger AS "trigger!: Trigger", r.state AS "state!: RunState",
               r.scheduled_time, r.created_on AS "created_on!", r.finished_on, r.duration_ms, r.error
          FROM unnest($1::bigint[]) AS requested (id)
         CROSS JOIN LATERAL (
               SELECT * FROM runs_ended
                WHERE id >= $2 AND (workflow_id, id) >= (requested.id, $2)
                  AND (workflow_id, id) <= (requested.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                ORDER BY workflow_id DESC, id DESC
                LIMIT 20
         ) AS r
         ORDER BY r.workflow_id, r.id DESC
        "#,
        workflows,
        low,
    )
    .fetch_all(db)
    .await
}

async fn read_live(db: &mut PgConnection, workflows: &[i64]) -> sqlx::Result<Vec<RunResult>> {
    sqlx::query_as!(
        RunResult,
        r#"
        -- the newest run of each workflow that has not ended
        SELECT DISTINCT ON (workflow_id)
               id, workflow_id, trigger AS "trigger: Trigger", state AS "state: RunState", scheduled_time, created_on,
               finished_on, duration_ms, error
          FROM runs_live
         WHERE workflow_id = ANY($1)
         ORDER BY workflow_id, id DESC
        "#,
        workflows,
    )
    .fetch_all(db)
    .await
}

struct Streak {
    workflow_id: i64,
    failures: i32,
}

async fn read_streaks(db: &mut PgConnection, workflows: &[i64]) -> sqlx::Result<Vec<Streak>> {
    sqlx::query_as!(
        Streak,
        r#"
        -- how many runs in a row failed, of many workflows; most have no row
        SELECT workflow_id, failures FROM failure_streaks WHERE workflow_id = ANY($1)
        "#,
        workflows,
    )
    .fetch_all(db)
    .await
}

struct Counted {
    workflow_id: i64,
    ended: i64,
    succeeded: i64,
    p95_duration_ms: Option<i64>,
}

impl Counted {
    fn week(&self) -> WeekOfRuns {
        WeekOfRuns { ended: self.ended, succeeded: self.succeeded, p95_duration_ms: self.p95_duration_ms }
    }
}

async fn count_since(db: &mut PgConnection, workflows: &[i64], low: Uuid) -> sqlx::Result<Vec<Counted>> {
    sqlx::query_as!(
        Counted,
        r#"
        -- the newest ended runs of many workflows, counted
        SELECT requested.id AS "workflow_id!", count(*) AS "ended!",
               count(*) FILTER (WHERE r.state = 'succeeded') AS "succeeded!",
               percentile_disc(0.95) WITHIN GROUP (ORDER BY r.duration_ms) AS p95_duration_ms
          FROM unnest($1::bigint[]) AS requested (id)
         CROSS JOIN LATERAL (
               SELECT state, duration_ms FROM runs_ended
                WHERE id >= $2 AND (workflow_id, id) >= (requested.id, $2)
                  AND (workflow_id, id) <= (requested.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                ORDER BY workflow_id DESC, id DESC
                LIMIT 200
         ) AS r
         GROUP BY requested.id
        "#,
        workflows,
        low,
    )
    .fetch_all(db)
    .await
}
