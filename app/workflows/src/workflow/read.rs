//! Steps 1 and 7 of 7: locks and reads workflows.
//!
//! A pause that is over may not be ended by the watchdog yet, so the lock ends it first. Then no edit, fire or pass of
//! the watchdog can lose a time that was due since.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use schedule::{Clock, Revision, WorkflowId};
use serde_json::{Map, Value};
use sqlx::types::Json;

use super::edit::save_since;
use super::{PausedBy, Saved, State, Workflow};
use crate::audit::Edit;
use crate::definition::labels::Labels;
use crate::definition::policies::{CatchUp, OnLost, Overlap, Policies};
use crate::definition::spec::{Spec, Timing};
use crate::sync::{Sync, SyncStatus};

/// A fire further in the future than this means that a clock is wrong.
pub const CLOCK_SKEW: TimeDelta = TimeDelta::minutes(5);

/// Selects workflows with their synchronization, by a comment, the columns that may be large, a source with its
/// condition, and its arguments. Lists the other columns of [`Row`] once; `query_as!` accepts only literals.
macro_rules! select_workflows {
    ($comment:tt, $large:tt, [$($source:tt)+], $($arguments:tt)*) => {
        sqlx::query_as!(
            Row,
            $comment
                + "SELECT "
                + $large
                + r#"
               w.id AS "id!", w.team_id AS "team_id!", w.name AS "name!", w.description, w.labels AS "labels!: Json<Labels>", w.is_api AS "is_api!",
               w.cron_schedule, w.timezone, w.state AS "state!: State", w.pause_reason, w.starts_at, w.ends_at,
               w.version AS "version!", w.revision AS "revision!", w.overlap_policy AS "overlap_policy!: Overlap",
               w.max_concurrent AS "max_concurrent!", w.catch_up_policy AS "catch_up_policy!: CatchUp",
               w.catch_up_window_secs AS "catch_up_window_secs!", w.spread_secs AS "spread_secs!",
               w.timeout_secs AS "timeout_secs!", w.max_attempts AS "max_attempts!", w.on_lost AS "on_lost!: OnLost",
               w.pause_after_failures, w.paused_by AS "paused_by: PausedBy", w.pause_until, w.managed_by, w.created_on AS "created_on!",
               w.updated_on AS "updated_on!",
               sync_status(p) AS "sync_status!: SyncStatus",
               p.desired_revision AS "desired_revision?", p.applied_revision, p.error_class, p.last_error,
               p.applied_on
        "#
                + $($source)+,
            $($arguments)*
        )
    };
}

pub(super) use select_workflows;

/// As `select_workflows!`, with complete inputs and actions.
macro_rules! select_complete {
    ($comment:tt, [$($source:tt)+], $($arguments:tt)*) => {
        select_workflows!(
            $comment,
            r#"w.action AS "action!", w.starting_inputs AS "starting_inputs!: Json<Map<String, Value>>",
               NULL::text AS inputs_text, NULL::integer AS inputs_bytes, NULL::integer AS action_bytes,"#,
            [$($source)+],
            $($arguments)*
        )
    };
}

/// Locks one workflow until the transaction ends, and returns it. An edit uses [`lock_for_edit`], unless it saves the
/// workflow with the same `now`.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn lock_workflow(
    tx: &mut PgConnection,
    id: WorkflowId,
    team_id: Option<i64>,
    now: DateTime<Utc>,
) -> sqlx::Result<Option<Workflow>> {
    let locked = lock_and_read(tx, id, team_id).await?;
    end_pause(tx, locked, now).await
}

/// As [`lock_workflow`], for an edit. Returns also the time of the edit, which is read under the lock: a fire that was
/// decided while the edit waited lies before it.
///
/// The end of a pause is evaluated at the same instant. If it were evaluated earlier, a pause that ended while the edit
/// waited would last until the edit, and the times in between would not be due.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn lock_for_edit(
    tx: &mut PgConnection,
    id: WorkflowId,
    team_id: Option<i64>,
    clock: &Clock,
) -> sqlx::Result<Option<(Workflow, DateTime<Utc>)>> {
    let Some(locked) = lock_and_read(tx, id, team_id).await? else { return Ok(None) };
    let now = clock.now();
    Ok(end_pause(tx, Some(locked), now).await?.map(|workflow| (workflow, now)))
}

/// Returns a locked workflow for a fire of `time`, which may arrive a moment early: a pause that ends at this time is
/// over then.
///
/// `now` was read under the lock, because a request may have waited for its connection and for the lock, and may be late
/// by now.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_locked_for_fire(
    tx: &mut PgConnection,
    id: WorkflowId,
    time: DateTime<Utc>,
    now: DateTime<Utc>,
) -> sqlx::Result<Option<Workflow>> {
    let at = if time > now + CLOCK_SKEW { now } else { now.max(time) };
    let locked = find_workflow(tx, id, None).await?.map(|(workflow, _)| workflow);
    end_pause(tx, locked, at).await
}

/// As [`lock_workflow`], but returns `None` if another transaction has locked the workflow, or if it does not exist.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn try_lock_workflow(
    tx: &mut PgConnection,
    id: WorkflowId,
    now: DateTime<Utc>,
) -> sqlx::Result<Option<Workflow>> {
    let locked = try_lock_and_read(tx, id).await?;
    end_pause(tx, locked, now).await
}

/// Ends the pause of a locked workflow if it is over.
async fn end_pause(
    tx: &mut PgConnection,
    locked: Option<Workflow>,
    now: DateTime<Utc>,
) -> sqlx::Result<Option<Workflow>> {
    let Some(workflow) = locked else { return Ok(None) };
    let Some(over) = workflow.pause_until.filter(|until| *until <= now) else { return Ok(Some(workflow)) };
    let edit = Edit::without_request("cronbox", now);
    Ok(match save_since(tx, &workflow, workflow.resumed(), "resume", &edit, Some(over)).await? {
        Saved::Enqueued(resumed) => Some(resumed.0),
        Saved::Unchanged | Saved::Changed => find_workflow(tx, workflow.id, None).await?.map(|(workflow, _)| workflow),
    })
}

/// Locks a workflow, of this team if one is given, and reads it. If the statement waits for the lock, Postgres reads the
/// newest row of the workflow, but not that of its publication.
///
/// It neither locks nor waits for the workflow of another team, whose edits and fires it would delay.
async fn lock_and_read(tx: &mut PgConnection, id: WorkflowId, team_id: Option<i64>) -> sqlx::Result<Option<Workflow>> {
    let row = select_complete!(
        "-- lock and read a workflow\n",
        [r#"
          FROM workflows w LEFT JOIN publications p ON p.workflow_id = w.id
         WHERE w.id = $1 AND ($2::bigint IS NULL OR w.team_id = $2)
           FOR NO KEY UPDATE OF w
        "#],
        id.0,
        team_id,
    )
    .fetch_optional(tx)
    .await?;
    Ok(row.map(|row| row.split().0))
}

/// Locks a workflow and reads it, unless another transaction has locked it.
async fn try_lock_and_read(tx: &mut PgConnection, id: WorkflowId) -> sqlx::Result<Option<Workflow>> {
    let row = select_complete!(
        "-- lock and read a workflow that no other transaction has locked\n",
        [r#"
          FROM workflows w LEFT JOIN publications p ON p.workflow_id = w.id
         WHERE w.id = $1
           FOR NO KEY UPDATE OF w SKIP LOCKED
        "#],
        id.0,
    )
    .fetch_optional(tx)
    .await?;
    Ok(row.map(|row| row.split().0))
}

/// Locks one workflow until the transaction ends, if it exists. A later statement reads it. The lock is NO KEY, so that
/// runs of the workflow can be inserted meanwhile.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn lock_row(tx: &mut PgConnection, id: WorkflowId) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- lock a workflow
        SELECT id FROM workflows WHERE id = $1 FOR NO KEY UPDATE
        "#,
        id.0
    )
    .fetch_optional(tx)
    .await
    .map(drop)
}

/// Returns the names of these workflows.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn names_of_workflows(db: &mut PgConnection, ids: &[i64]) -> sqlx::Result<HashMap<i64, String>> {
    let rows = sqlx::query!(
        r#"
        -- the names of the workflows of a page of runs
        SELECT id, name FROM workflows WHERE id = ANY($1)
        "#,
        ids,
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.name)).collect())
}

/// Whether a workflow exists, and belongs to this team if one is given.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn is_visible(db: &mut PgConnection, id: WorkflowId, team_id: Option<i64>) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"
        -- is a workflow visible: without its inputs, which may be large
        SELECT EXISTS (SELECT FROM workflows WHERE id = $1 AND ($2::bigint IS NULL OR team_id = $2)) AS "is!"
        "#,
        id.0,
        team_id,
    )
    .fetch_one(db)
    .await
}

/// Returns the team of a workflow.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_team(db: &mut PgConnection, id: WorkflowId) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- team of a workflow
        SELECT team_id FROM workflows WHERE id = $1
        "#,
        id.0,
    )
    .fetch_optional(db)
    .await
}

/// Returns one workflow with its synchronization.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_workflow(
    db: &mut PgConnection,
    id: WorkflowId,
    team_id: Option<i64>,
) -> sqlx::Result<Option<(Workflow, Sync)>> {
    let row = select_complete!(
        "-- find a workflow\n",
        [r#"
          FROM workflows w LEFT JOIN publications p ON p.workflow_id = w.id
         WHERE w.id = $1 AND ($2::bigint IS NULL OR w.team_id = $2)
        "#],
        id.0,
        team_id,
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(Row::split))
}

/// Reads workflows of a team completely, in the order of their ids, after one of them.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn export_workflows(
    db: &mut PgConnection,
    team_id: i64,
    after: i64,
    limit: i64,
) -> sqlx::Result<Vec<(Workflow, Sync)>> {
    let rows = select_complete!(
        "-- export workflows of a team, archived ones included\n",
        [r#"
          FROM workflows w LEFT JOIN publications p ON p.workflow_id = w.id
         WHERE w.team_id = $1 AND w.id > $2
         ORDER BY w.id
         LIMIT $3
        "#],
        team_id,
        after,
        limit,
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(Row::split).collect())
}

/// A row of [`select_workflows`].
pub(super) struct Row {
    pub(super) id: i64,
    pub(super) team_id: i64,
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) labels: Json<Labels>,
    pub(super) is_api: bool,
    pub(super) action: Value,
    pub(super) starting_inputs: Json<Map<String, Value>>,
    /// The inputs in a list, NULL if they are large.
    pub(super) inputs_text: Option<String>,
    /// The stored size of inputs that a list leaves out.
    pub(super) inputs_bytes: Option<i32>,
    /// The stored size of an action of which a list leaves out a part.
    pub(super) action_bytes: Option<i32>,
    pub(super) cron_schedule: Option<String>,
    pub(super) timezone: Option<String>,
    pub(super) state: State,
    pub(super) pause_reason: Option<String>,
    pub(super) starts_at: Option<DateTime<Utc>>,
    pub(super) ends_at: Option<DateTime<Utc>>,
    pub(super) version: i64,
    pub(super) revision: i64,
    pub(super) overlap_policy: Overlap,
    pub(super) max_concurrent: i32,
    pub(super) catch_up_policy: CatchUp,
    pub(super) catch_up_window_secs: i32,
    pub(super) spread_secs: i32,
    pub(super) timeout_secs: i32,
    pub(super) max_attempts: i32,
    pub(super) on_lost: OnLost,
    pub(super) pause_after_failures: Option<i32>,
    pub(super) paused_by: Option<PausedBy>,
    pub(super) pause_until: Option<DateTime<Utc>>,
    pub(super) managed_by: Option<String>,
    pub(super) created_on: DateTime<Utc>,
    pub(super) updated_on: DateTime<Utc>,
    pub(super) sync_status: SyncStatus,
    pub(super) desired_revision: Option<i64>,
    pub(super) applied_revision: Option<i64>,
    pub(super) error_class: Option<String>,
    pub(super) last_error: Option<String>,
    pub(super) applied_on: Option<DateTime<Utc>>,
}

impl Row {
    pub(super) fn split(self) -> (Workflow, Sync) {
        let timing = Timing {
            cron: self.cron_schedule,
            timezone: self.timezone,
            starts_at: self.starts_at,
            ends_at: self.ends_at,
        };
        let policies = Policies {
            overlap: self.overlap_policy,
            max_concurrent: self.max_concurrent,
            catch_up: self.catch_up_policy,
            catch_up_window_secs: self.catch_up_window_secs,
            spread_secs: self.spread_secs,
            timeout_secs: self.timeout_secs,
            max_attempts: self.max_attempts,
            on_lost: self.on_lost,
            pause_after_failures: self.pause_after_failures,
        };
        let spec = Spec {
            name: self.name,
            description: self.description,
            labels: self.labels.0,
            timing,
            is_api: self.is_api,
            action: self.action,
            starting_inputs: self.starting_inputs.0,
            policies,
        };
        let workflow = Workflow {
            id: WorkflowId(self.id),
            team_id: self.team_id,
            spec,
            state: self.state,
            pause_reason: self.pause_reason,
            paused_by: self.paused_by,
            pause_until: self.pause_until,
            managed_by: self.managed_by,
            version: self.version,
            revision: Revision(self.revision),
            created_on: self.created_on,
            updated_on: self.updated_on,
        };
        let sync = Sync {
            status: self.sync_status,
            desired_revision: self.desired_revision,
            applied_revision: self.applied_revision,
            error_class: self.error_class,
            last_error: self.last_error,
            applied_at: self.applied_on,
        };
        (workflow, sync)
    }
}
