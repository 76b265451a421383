//! Step 1 of 7: lists workflows. A list shows large inputs and actions in part.

use std::collections::HashMap;

use db::PgConnection;
use serde_json::{Map, Value};
use sqlx::types::Json;

use super::read::{Row, select_workflows};
use super::{LastResult, PausedBy, State, Workflow};
use crate::definition::labels::{Labels, Selector};
use crate::definition::policies::{CatchUp, OnLost, Overlap};
use crate::keyset::KeysetPage;
use crate::sync::{Sync, SyncStatus};

/// Which workflows the caller may see, and filters.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only this team's.
    pub team_id: Option<i64>,
    /// Only workflows in this state.
    pub state: Option<State>,
    /// Only workflows that this one paused.
    pub paused_by: Option<PausedBy>,
    /// Only workflows with this synchronization status.
    pub sync: Option<SyncStatus>,
    /// Only workflows whose newest ended run has one of these results; empty: any, and none.
    pub last_results: Vec<LastResult>,
    /// Only workflows of which at least so many runs in a row failed or timed out, up to the last one.
    pub failures_in_a_row: Option<i32>,
    /// Only workflows whose name or description contains this text, in any case.
    pub q: Option<String>,
    /// Only workflows with each of these labels.
    pub labels: Vec<Selector>,
    /// Only workflows whose next times the last change of the zone data changed (`true`), or did not change (`false`).
    pub timezone_changed: Option<bool>,
    /// Only workflows with a cron.
    pub scheduled: bool,
    /// Also archived workflows; a list of one state has its own.
    pub with_archived: bool,
    /// Only workflows with a higher id than this one.
    pub after: Option<i64>,
    /// Workflows on a page at most.
    pub limit: i64,
}

/// A workflow in a list.
#[derive(Clone, Debug)]
pub struct ListedWorkflow {
    /// The workflow. Its inputs are empty here, and its action is without header values and without large parts.
    pub workflow: Workflow,
    /// Its synchronization.
    pub sync: Sync,
    /// Its inputs as JSON; `None` if they are larger than 1 KiB.
    pub starting_inputs: Option<String>,
    /// The stored size of inputs that are left out.
    pub starting_inputs_bytes: Option<i32>,
    /// The stored size of the complete action, if a part of it is left out.
    pub action_bytes: Option<i32>,
}

/// Lists workflows in the order of their ids. Both statements need the same snapshot.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_workflows(db: &mut PgConnection, filter: &Filter) -> sqlx::Result<KeysetPage<ListedWorkflow, i64>> {
    let rows = match (filter.team_id, filter.state, filter.failures_in_a_row) {
        (Some(team), _, Some(least)) => of_team_failing(db, team, least, filter).await?,
        (None, _, Some(least)) => of_all_failing(db, least, filter).await?,
        (Some(team), Some(state @ (State::Paused | State::Archived)), None) => {
            of_team_inactive(db, team, state, filter).await?
        }
        (Some(team), _, None) => of_team(db, team, filter).await?,
        (None, _, None) => of_all(db, filter).await?,
    };
    let rows = rows.into_iter().map(ListedWorkflow::from).collect();
    let mut page = KeysetPage::of_rows(rows, filter.limit, |listed: &ListedWorkflow| listed.workflow.id.0);
    if page.next.is_none() && filter.passes_over() {
        page.next = match (filter.team_id, filter.state, filter.failures_in_a_row) {
            (Some(team), _, Some(least)) => end_of_scan_of_team_failing(db, team, least, filter.after()).await?,
            (None, _, Some(least)) => end_of_scan_of_failing(db, least, filter.after()).await?,
            (Some(team), Some(state @ (State::Paused | State::Archived)), None) => {
                end_of_scan_of_inactive(db, team, state, filter.after()).await?
            }
            (Some(team), _, None) => end_of_scan_of_team(db, team, filter.after()).await?,
            (None, _, None) => end_of_scan(db, filter.after()).await?,
        };
    }
    Ok(page)
}

impl Filter {
    fn after(&self) -> i64 {
        self.after.unwrap_or(i64::MIN)
    }

    pub(super) fn labels_with_values(&self) -> Labels {
        let with_value = |one: &Selector| Some((one.key.clone(), one.value.clone()?));
        self.labels.iter().filter_map(with_value).collect()
    }

    pub(super) fn stored_results(&self) -> Vec<&'static str> {
        self.last_results.iter().map(|result| result.as_str()).collect()
    }

    pub(super) fn keys_of_labels(&self) -> Vec<String> {
        self.labels.iter().map(|one| one.key.clone()).collect()
    }

    /// Whether rows may be passed over.
    fn passes_over(&self) -> bool {
        let is_named = self.state.is_some()
            || self.paused_by.is_some()
            || self.sync.is_some()
            || self.q.is_some()
            || !self.last_results.is_empty()
            || self.failures_in_a_row.is_some()
            || !self.labels.is_empty();
        is_named || self.timezone_changed.is_some() || self.scheduled || !self.with_archived
    }
}

/// Lists workflows by a comment, the workflows that the statement reads in their order, the same order, and further
/// arguments. A comparison of rows reads only the index of its columns, so that no plan passes over other teams.
/// `query_as!` accepts only literals.
macro_rules! list_page {
    ($comment:tt, $scope:tt, $order:tt, $filter:expr, $($arguments:tt)*) => {
        select_workflows!(
            $comment,
            r#"listed_action(w.action) AS "action!", '{}'::jsonb AS "starting_inputs!: Json<Map<String, Value>>",
               listed_json(w.starting_inputs) AS inputs_text,
               CASE WHEN listed_json(w.starting_inputs) IS NULL THEN pg_column_size(w.starting_inputs) END AS inputs_bytes,
               CASE WHEN is_action_cut(w.action) THEN pg_column_size(w.action) END AS action_bytes,"#,
            [r#"
          FROM (SELECT * FROM workflows WHERE "#
                + $scope
                + r#" LIMIT 5000) AS w
          LEFT JOIN publications p ON p.workflow_id = w.id AND p.workflow_id > $1
         WHERE CASE WHEN $2::text IS NULL THEN $8::boolean OR w.state <> 'archived' ELSE w.state = $2 END
           AND ($3::text IS NULL OR sync_status(p) = $3)
           AND ($4::text IS NULL OR strpos(lower(w.name || ' ' || coalesce(w.description, '')), lower($4)) > 0)
           AND (NOT $5::boolean OR w.cron_schedule IS NOT NULL)
           AND ($6::boolean IS NULL
                OR $6 = COALESCE(w.zone_change_id = (SELECT max(id) FROM zone_changes), false))
           AND w.labels @> $9::jsonb AND w.labels ?& $10::text[]
           AND ($11::text IS NULL OR w.paused_by = $11)
           AND ($12::text[] = '{}' OR last_result(w.id) = ANY($12))
         ORDER BY "#
                + $order
                + " LIMIT $7"],
            $filter.after(),
            $filter.state as Option<State>,
            $filter.sync as Option<SyncStatus>,
            $filter.q,
            $filter.scheduled,
            $filter.timezone_changed,
            $filter.limit + 1,
            $filter.with_archived,
            Json($filter.labels_with_values()) as _,
            &$filter.keys_of_labels(),
            $filter.paused_by as Option<PausedBy>,
            &$filter.stored_results() as &[&str],
            $($arguments)*
        )
    };
}

async fn of_all(db: &mut PgConnection, filter: &Filter) -> sqlx::Result<Vec<Row>> {
    list_page!(
        "-- list workflows by key: a page never skips what another page's edits move\n",
        "id > $1 ORDER BY id",
        "w.id",
        filter,
    )
    .fetch_all(db)
    .await
}

async fn of_team(db: &mut PgConnection, team: i64, filter: &Filter) -> sqlx::Result<Vec<Row>> {
    list_page!(
        "-- list the workflows of a team by key, by idx_workflows_team_id\n",
        "(team_id, id) > ($13, $1) AND (team_id, id) <= ($13, 9223372036854775807) ORDER BY team_id, id",
        "w.team_id, w.id",
        filter,
        team
    )
    .fetch_all(db)
    .await
}

async fn of_team_inactive(db: &mut PgConnection, team: i64, state: State, filter: &Filter) -> sqlx::Result<Vec<Row>> {
    list_page!(
        "-- list the paused or archived workflows of a team by key, by idx_workflows_inactive\n",
        "state IN ('paused', 'archived') AND (team_id, state, id) > ($13, $14::text, $1)
           AND (team_id, state, id) <= ($13, $14::text, 9223372036854775807)
         ORDER BY team_id, state, id",
        "w.team_id, w.state, w.id",
        filter,
        team,
        state as State
    )
    .fetch_all(db)
    .await
}

async fn of_team_failing(db: &mut PgConnection, team: i64, least: i32, filter: &Filter) -> sqlx::Result<Vec<Row>> {
    list_page!(
        "-- list the failing workflows of a team by key, by idx_failure_streaks_team\n",
        "id IN (SELECT workflow_id FROM failure_streaks
                 WHERE (team_id, workflow_id) > ($13, $1) AND (team_id, workflow_id) <= ($13, 9223372036854775807)
                   AND failures >= $14
                 ORDER BY team_id, workflow_id
                 LIMIT 5000)
           AND team_id = $13
         ORDER BY id",
        "w.id",
        filter,
        team,
        least
    )
    .fetch_all(db)
    .await
}

async fn of_all_failing(db: &mut PgConnection, least: i32, filter: &Filter) -> sqlx::Result<Vec<Row>> {
    list_page!(
        "-- list the failing workflows of all teams by key\n",
        "id IN (SELECT workflow_id FROM failure_streaks
                 WHERE workflow_id > $1 AND failures >= $13
                 ORDER BY workflow_id
                 LIMIT 5000)
         ORDER BY id",
        "w.id",
        filter,
        least
    )
    .fetch_all(db)
    .await
}

/// Lists workflows by their ids.
pub(super) async fn list_by_ids(db: &mut PgConnection, ids: &[i64]) -> sqlx::Result<HashMap<i64, ListedWorkflow>> {
    let limit = i64::try_from(ids.len()).unwrap_or(i64::MAX);
    let filter = Filter { with_archived: true, limit, ..Filter::default() };
    let rows = list_page!(
        "-- list the workflows of a sorted page\n",
        "id > $1 AND id = ANY($13) ORDER BY id",
        "w.id",
        filter,
        ids
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, ListedWorkflow::from(row))).collect())
}

async fn end_of_scan(db: &mut PgConnection, after: i64) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the last workflow that the list read; none: it read all
        SELECT id FROM workflows WHERE id > $1 ORDER BY id OFFSET 4999 LIMIT 1
        "#,
        after,
    )
    .fetch_optional(db)
    .await
}

async fn end_of_scan_of_team(db: &mut PgConnection, team: i64, after: i64) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the last workflow of the team that the list read; none: it read all
        SELECT id FROM workflows
         WHERE (team_id, id) > ($1, $2) AND (team_id, id) <= ($1, 9223372036854775807)
         ORDER BY team_id, id
        OFFSET 4999 LIMIT 1
        "#,
        team,
        after,
    )
    .fetch_optional(db)
    .await
}

async fn end_of_scan_of_inactive(
    db: &mut PgConnection,
    team: i64,
    state: State,
    after: i64,
) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the last paused or archived workflow of the team that the list read; none: it read all
        SELECT id FROM workflows
         WHERE state IN ('paused', 'archived') AND (team_id, state, id) > ($1, $2::text, $3)
           AND (team_id, state, id) <= ($1, $2::text, 9223372036854775807)
         ORDER BY team_id, state, id
        OFFSET 4999 LIMIT 1
        "#,
        team,
        state as State,
        after,
    )
    .fetch_optional(db)
    .await
}

async fn end_of_scan_of_team_failing(
    db: &mut PgConnection,
    team: i64,
    least: i32,
    after: i64,
) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the last failing workflow of the team that the list read; none: it read all
        SELECT workflow_id FROM failure_streaks
         WHERE (team_id, workflow_id) > ($1, $3) AND (team_id, workflow_id) <= ($1, 9223372036854775807)
           AND failures >= $2
         ORDER BY team_id, workflow_id
        OFFSET 4999 LIMIT 1
        "#,
        team,
        least,
        after,
    )
    .fetch_optional(db)
    .await
}

async fn end_of_scan_of_failing(db: &mut PgConnection, least: i32, after: i64) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the last failing workflow that the list read; none: it read all
        SELECT workflow_id FROM failure_streaks
         WHERE failures >= $1 AND workflow_id > $2
         ORDER BY workflow_id
        OFFSET 4999 LIMIT 1
        "#,
        least,
        after,
    )
    .fetch_optional(db)
    .await
}

impl From<Row> for ListedWorkflow {
    fn from(mut row: Row) -> Self {
        let starting_inputs = row.inputs_text.take();
        let (starting_inputs_bytes, action_bytes) = (row.inputs_bytes, row.action_bytes);
        let (workflow, sync) = row.split();
        Self { workflow, sync, starting_inputs, starting_inputs_bytes, action_bytes }
    }
}
