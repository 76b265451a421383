//! Step 7 of 7: lists runs by key, the newest first. Each scope has its index, and each statement reads one scope.
//!
//! | scope | index |
//! |---|---|
//! | a workflow | `idx_runs_workflow_id`, and `idx_runs_automatic` of those that have not ended |
//! | a team | `idx_runs_team`, and `idx_runs_live_team` of those that have not ended |
//! | a team's runs that failed, timed out or were abandoned | `idx_runs_team_failed` |
//! | a team's runs that no fire accepted | `idx_runs_team_trigger` |
//! | all | the primary key |
//!
//! A scope is a comparison of rows with both of its columns, in the order of both. If it were `team_id = $1`, Postgres
//! could read the primary key and pass over the runs of all other teams. The bounds of the id are repeated, so that only
//! the partitions of the days between them are read. Most pages are of the last days, so these are read first: Postgres
//! would plan and lock the partitions of all days for each page.
//!
//! The runs of a deleted workflow are left out until the job `prune` has removed them.

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use uuid::Uuid;
use workflows::id::{first_id_of, time_of_id};
use workflows::keyset::KeysetPage;
use workflows::trigger::Trigger;

use super::{Run, RunState};

/// The days that are read first.
const LAST_DAYS: TimeDelta = TimeDelta::days(7);

/// How many runs are counted at most.
pub const MOST_COUNTED: usize = 10_000;

/// Which runs the caller may see, and filters.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only this team's.
    pub team_id: Option<i64>,
    /// Only this workflow's.
    pub workflow_id: Option<i64>,
    /// Only runs in one of these states; all if there is none.
    pub states: Vec<RunState>,
    /// Only runs with one of these triggers; all if there is none.
    pub triggers: Vec<Trigger>,
    /// Accepted in the millisecond of this time or later.
    pub from: Option<DateTime<Utc>>,
    /// Accepted before the millisecond of this time.
    pub to: Option<DateTime<Utc>>,
    /// Only runs before this one, the last of the previous page.
    pub before: Option<Uuid>,
    /// Runs on a page at most.
    pub limit: i64,
    /// The time of the request: the last days before it are read first.
    pub now: DateTime<Utc>,
}

/// The arguments of a statement; `None` = all states or triggers.
struct Conditions {
    states: Option<Vec<String>>,
    triggers: Option<Vec<String>>,
    limit: i64,
}

/// The rows that a statement reads.
#[derive(Clone, Copy, Debug)]
enum Scope {
    Workflow(i64),
    Team(i64),
    /// Those in this state, one of failures.
    FailedOfTeam(i64, RunState),
    /// Those with this trigger, which is not `schedule`.
    TriggeredOfTeam(i64, Trigger),
    All,
}

/// The ids of a page: from `low` on, before `high`. Ids ascend with time (uuid v7).
#[derive(Clone, Copy, Debug)]
struct Bounds {
    low: Uuid,
    high: Uuid,
}

/// Lists runs, the newest first. All statements need the same snapshot.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_runs(db: &mut PgConnection, filter: &Filter) -> sqlx::Result<KeysetPage<Run, Uuid>> {
    let (scope, bounds) = (filter.scope(), filter.bounds());
    if let (Some(workflow), Some(team)) = (filter.workflow_id, filter.team_id)
        && !workflows::is_visible(db, WorkflowId(workflow), Some(team)).await?
    {
        return Ok(KeysetPage::empty());
    }
    if let Some(last_days) = bounds.last_days(filter.now) {
        let page = list_within(db, scope, last_days, filter).await?;
        if page.next.is_some() {
            return Ok(page);
        }
    }
    list_within(db, scope, bounds, filter).await
}

/// Counts the runs of all pages of a list; at most [`MOST_COUNTED`]. It reads the runs of its scope until so many match: without a
/// begin, a filter that few of them pass makes it read all.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn count_runs(db: &mut PgConnection, filter: &Filter) -> sqlx::Result<usize> {
    let all_pages = Filter { before: None, ..filter.clone() };
    let counted = count_within(db, all_pages.scope(), all_pages.bounds(), &all_pages).await?;
    Ok(usize::try_from(counted).unwrap_or_default())
}

async fn list_within(
    db: &mut PgConnection,
    scope: Scope,
    bounds: Bounds,
    filter: &Filter,
) -> sqlx::Result<KeysetPage<Run, Uuid>> {
    let rows = read_page(db, scope, bounds, filter).await?;
    let mut page = KeysetPage::of_rows(rows, filter.limit, |run| run.id);
    if page.next.is_none() {
        page.next = end_of_scan(db, scope, bounds).await?;
    }
    Ok(page)
}

impl Filter {
    fn scope(&self) -> Scope {
        let (None, Some(team)) = (self.workflow_id, self.team_id) else {
            return self.workflow_id.map_or(Scope::All, Scope::Workflow);
        };
        match (&*self.states, &*self.triggers) {
            (&[state @ (RunState::Failed | RunState::TimedOut | RunState::Abandoned)], _) => {
                Scope::FailedOfTeam(team, state)
            }
            (_, &[trigger]) if trigger != Trigger::Schedule => Scope::TriggeredOfTeam(team, trigger),
            _ => Scope::Team(team),
        }
    }

    fn conditions(&self) -> Conditions {
        let states = self.states.iter().map(|state| state.as_str().to_owned()).collect();
        let triggers = self.triggers.iter().map(|trigger| trigger.as_str().to_owned()).collect();
        let some = |words: Vec<String>| (!words.is_empty()).then_some(words);
        Conditions { states: some(states), triggers: some(triggers), limit: self.limit }
    }

    fn bounds(&self) -> Bounds {
        let before = self.before.unwrap_or(Uuid::max());
        Bounds {
            low: self.from.map_or(Uuid::nil(), first_id_of),
            high: self.to.map_or(before, |to| before.min(first_id_of(to))),
        }
    }
}

impl Bounds {
    /// The last days of these bounds; `None` if they have no earlier ones.
    fn last_days(self, now: DateTime<Utc>) -> Option<Self> {
        let low = first_id_of(time_of_id(self.high).min(now) - LAST_DAYS);
        (low > self.low).then_some(Self { low, ..self })
    }
}

/// Selects the runs of a page by a comment, the rows of its scope in order, the same order, and further arguments. In
/// another order the statement would sort all rows that it passes over. `query_as!` accepts only literals.
macro_rules! select_runs {
    ($comment:tt, $rows:tt, $order:tt, $bounds:expr, $filter:expr, $($arguments:tt)*) => {
        sqlx::query_as!(
            Run,
            $comment
                + r#"
        SELECT r.id AS "id!", r.workflow_id AS "workflow_id!", r.trigger AS "trigger!: Trigger", r.state AS "state!: RunState",
               r.scheduled_time, r.attempt AS "attempt!", r.created_on AS "created_on!", r.started_on, r.finished_on, r.duration_ms, listed_json(r.result) AS result,
               CASE WHEN listed_json(r.result) IS NULL
                    THEN COALESCE(pg_column_size(r.result),
                                  (SELECT pg_column_size(x.result) FROM run_results x
                                    WHERE x.run_id = r.id AND x.run_id >= $1 AND x.run_id < $2))
               END AS result_bytes, r.error
          FROM ("#
                + $rows
                + r#" LIMIT 5000) AS r
         WHERE ($3::text[] IS NULL OR r.state = ANY($3)) AND ($4::text[] IS NULL OR r.trigger = ANY($4))
           AND NOT EXISTS (SELECT FROM deleted_workflows d WHERE d.workflow_id = r.workflow_id)
         ORDER BY "#
                + $order
                + " LIMIT $5",
            $bounds.low,
            $bounds.high,
            $filter.states.as_deref(),
            $filter.triggers.as_deref(),
            $filter.limit + 1,
            $($arguments)*
        )
    };
}

async fn read_page(db: &mut PgConnection, scope: Scope, bounds: Bounds, filter: &Filter) -> sqlx::Result<Vec<Run>> {
    let filter = filter.conditions();
    match scope {
        Scope::Workflow(workflow) => {
            // The few live runs have no index for this order: with one sort of all rows, Postgres would read them all.
            select_runs!(
                "-- list the runs of a workflow by key\n",
                "SELECT * FROM (
                     (SELECT id, workflow_id, trigger, state, scheduled_time, attempt, created_on, started_on, finished_on,
                             duration_ms, result, error
                        FROM runs_live
                       WHERE workflow_id = $6 AND id >= $1 AND id < $2)
                      UNION ALL
                     (SELECT id, workflow_id, trigger, state, scheduled_time, attempt, created_on, started_on, finished_on,
                             duration_ms, result, error
                        FROM runs_ended
                       WHERE id >= $1 AND id < $2 AND (workflow_id, id) >= ($6, $1) AND (workflow_id, id) < ($6, $2)
                       ORDER BY workflow_id DESC, id DESC
                       LIMIT 5000)) AS found
                  ORDER BY workflow_id DESC, id DESC",
                "r.workflow_id DESC, r.id DESC",
                bounds,
                filter,
                workflow
            )
            .fetch_all(db)
            .await
        }
        Scope::Team(team) => {
            select_runs!(
            "-- list the runs of a team by key\n",
            "SELECT * FROM runs WHERE id >= $1 AND id < $2 AND (team_id, id) >= ($6, $1) AND (team_id, id) < ($6, $2)
                  ORDER BY team_id DESC, id DESC",
            "r.team_id DESC, r.id DESC",
            bounds,
            filter,
            team
        )
            .fetch_all(db)
            .await
        }
        Scope::FailedOfTeam(team, state) => {
            select_runs!(
                "-- list the failed runs of a team by key\n",
                "SELECT * FROM runs WHERE id >= $1 AND id < $2 AND state IN ('failed', 'timed_out', 'abandoned')
                AND (team_id, state, id) >= ($6, $7::text, $1) AND (team_id, state, id) < ($6, $7::text, $2)
              ORDER BY team_id DESC, state DESC, id DESC",
                "r.team_id DESC, r.state DESC, r.id DESC",
                bounds,
                filter,
                team,
                state as RunState
            )
            .fetch_all(db)
            .await
        }
        Scope::TriggeredOfTeam(team, trigger) => {
            select_runs!(
                "-- list the runs of a team with a trigger by key\n",
                "SELECT * FROM runs WHERE id >= $1 AND id < $2 AND trigger <> 'schedule'
                AND (team_id, trigger, id) >= ($6, $7::text, $1) AND (team_id, trigger, id) < ($6, $7::text, $2)
              ORDER BY team_id DESC, trigger DESC, id DESC",
                "r.team_id DESC, r.trigger DESC, r.id DESC",
                bounds,
                filter,
                team,
                trigger as Trigger
            )
            .fetch_all(db)
            .await
        }
        Scope::All => {
            select_runs!(
                "-- list all runs by key\n",
                "SELECT * FROM runs WHERE id >= $1 AND id < $2 ORDER BY id DESC",
                "r.id DESC",
                bounds,
                filter,
            )
            .fetch_all(db)
            .await
        }
    }
}

/// Counts the runs of a scope by a comment, the condition of the scope with its order, and further arguments. Without the order
/// of its index, Postgres would read the runs of all scopes.
macro_rules! count_scope {
    ($comment:tt, $scope:tt, $bounds:expr, $filter:expr, $($arguments:tt)*) => {
        sqlx::query_scalar!(
            $comment
                + r#"
        SELECT count(*) AS "runs!"
          FROM (SELECT FROM runs r
                 WHERE r.id >= $1 AND r.id < $2
                   AND ($3::text[] IS NULL OR r.state = ANY($3)) AND ($4::text[] IS NULL OR r.trigger = ANY($4))
                   AND NOT EXISTS (SELECT FROM deleted_workflows d WHERE d.workflow_id = r.workflow_id) "#
                + $scope
                + " LIMIT $5) AS counted",
            $bounds.low,
            $bounds.high,
            $filter.states.as_deref(),
            $filter.triggers.as_deref(),
            MOST_COUNTED as i64,
            $($arguments)*
        )
    };
}

async fn count_within(db: &mut PgConnection, scope: Scope, bounds: Bounds, filter: &Filter) -> sqlx::Result<i64> {
    let conditions = filter.conditions();
    match scope {
        Scope::Workflow(workflow) => {
            count_scope!(
                "-- count the runs of a workflow\n",
                "AND (r.workflow_id, r.id) >= ($6, $1) AND (r.workflow_id, r.id) < ($6, $2)
                 AND ($7::bigint IS NULL OR r.team_id = $7)
               ORDER BY r.workflow_id DESC, r.id DESC",
                bounds,
                conditions,
                workflow,
                filter.team_id
            )
            .fetch_one(db)
            .await
        }
        Scope::Team(team) => {
            count_scope!(
                "-- count the runs of a team\n",
                "AND (r.team_id, r.id) >= ($6, $1) AND (r.team_id, r.id) < ($6, $2)
               ORDER BY r.team_id DESC, r.id DESC",
                bounds,
                conditions,
                team
            )
            .fetch_one(db)
            .await
        }
        Scope::FailedOfTeam(team, state) => {
            count_scope!(
                "-- count the failed runs of a team\n",
                "AND r.state IN ('failed', 'timed_out', 'abandoned')
                 AND (r.team_id, r.state, r.id) >= ($6, $7::text, $1) AND (r.team_id, r.state, r.id) < ($6, $7::text, $2)
               ORDER BY r.team_id DESC, r.state DESC, r.id DESC",
                bounds,
                conditions,
                team,
                state as RunState
            )
            .fetch_one(db)
            .await
        }
        Scope::TriggeredOfTeam(team, trigger) => {
            count_scope!(
                "-- count the runs of a team with a trigger\n",
                "AND r.trigger <> 'schedule'
                 AND (r.team_id, r.trigger, r.id) >= ($6, $7::text, $1) AND (r.team_id, r.trigger, r.id) < ($6, $7::text, $2)
               ORDER BY r.team_id DESC, r.trigger DESC, r.id DESC",
                bounds,
                conditions,
                team,
                trigger as Trigger
            )
            .fetch_one(db)
            .await
        }
        Scope::All => {
            count_scope!("-- count all runs\n", "ORDER BY r.id DESC", bounds, conditions,).fetch_one(db).await
        }
    }
}

/// Selects the last run that a page read, if it read as many as it may.
macro_rules! select_end {
    ($comment:tt, $scope:tt, $bounds:expr, $($arguments:tt)*) => {
        sqlx::query_scalar!(
            $comment
                + r#"SELECT id AS "id!" FROM "#
                + $scope
                + " OFFSET 4999 LIMIT 1",
            $bounds.low,
            $bounds.high,
            $($arguments)*
        )
    };
}

async fn end_of_scan(db: &mut PgConnection, scope: Scope, bounds: Bounds) -> sqlx::Result<Option<Uuid>> {
    match scope {
        Scope::Workflow(workflow) => {
            select_end!(
                "-- the last run of a workflow that the list read\n",
                "((SELECT workflow_id, id FROM runs_live WHERE workflow_id = $3 AND id >= $1 AND id < $2)
                   UNION ALL
                  (SELECT workflow_id, id FROM runs_ended
                    WHERE id >= $1 AND id < $2 AND (workflow_id, id) >= ($3, $1) AND (workflow_id, id) < ($3, $2)
                    ORDER BY workflow_id DESC, id DESC
                    LIMIT 5000)) AS found
                  ORDER BY workflow_id DESC, id DESC",
                bounds,
                workflow
            )
            .fetch_optional(db)
            .await
        }
        Scope::Team(team) => {
            select_end!(
                "-- the last run of a team that the list read\n",
                "runs WHERE id >= $1 AND id < $2 AND (team_id, id) >= ($3, $1) AND (team_id, id) < ($3, $2)
                  ORDER BY team_id DESC, id DESC",
                bounds,
                team
            )
            .fetch_optional(db)
            .await
        }
        Scope::FailedOfTeam(team, state) => {
            select_end!(
                "-- the last failed run of a team that the list read\n",
                "runs WHERE id >= $1 AND id < $2 AND state IN ('failed', 'timed_out', 'abandoned')
                    AND (team_id, state, id) >= ($3, $4::text, $1) AND (team_id, state, id) < ($3, $4::text, $2)
                  ORDER BY team_id DESC, state DESC, id DESC",
                bounds,
                team,
                state as RunState
            )
            .fetch_optional(db)
            .await
        }
        Scope::TriggeredOfTeam(team, trigger) => {
            select_end!(
                "-- the last run of a team with a trigger that the list read\n",
                "runs WHERE id >= $1 AND id < $2 AND trigger <> 'schedule'
                    AND (team_id, trigger, id) >= ($3, $4::text, $1) AND (team_id, trigger, id) < ($3, $4::text, $2)
                  ORDER BY team_id DESC, trigger DESC, id DESC",
                bounds,
                team,
                trigger as Trigger
            )
            .fetch_optional(db)
            .await
        }
        Scope::All => {
            select_end!(
                "-- the last run that the list read\n",
                "runs WHERE id >= $1 AND id < $2 ORDER BY id DESC",
                bounds,
            )
            .fetch_optional(db)
            .await
        }
    }
}
