//! Step 7 of 7: the statements on the table `backfills`.

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use uuid::Uuid;
use workflows::audit::Edit;
use workflows::id::{first_run_id_of, time_of_id};

use super::{Backfill, BackfillRequest, Only, Order, State, Timing};

/// Returns one backfill that the team may see, with the counts of its runs.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_backfill(db: &mut PgConnection, id: Uuid, team_id: Option<i64>) -> sqlx::Result<Option<Backfill>> {
    let row = sqlx::query_as!(
        Row,
        r#"
        -- find a backfill
        SELECT b.id, b.workflow_id, b.start_at, b.end_at, b.run_order AS "run_order: Order",
               b.only_decided AS "only_decided: Only", b.max_concurrent, b.state AS "state: State", b.cursor_at,
               b.timing AS "timing: Timing", b.timing_revision, b.total, b.started, b.requested_by, b.created_on,
               b.updated_on, b.finished_on,
               (SELECT count(*) FROM runs_live r WHERE r.backfill_id = b.id) AS "live!",
               -- its runs are newer, so no earlier day is read
               (SELECT count(*) FROM runs r WHERE r.backfill_id = b.id AND r.state = 'succeeded' AND r.id >= $3)
                   + b.pruned_succeeded AS "succeeded!"
          FROM backfills b JOIN workflows w ON w.id = b.workflow_id
         WHERE b.id = $1 AND ($2::bigint IS NULL OR w.team_id = $2)
        "#,
        id,
        team_id,
        first_run_id_of(time_of_id(id)),
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(Backfill::from))
}

/// Returns the workflow of a backfill that the team may see. It never changes.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_workflow_of(
    db: &mut PgConnection,
    id: Uuid,
    team_id: Option<i64>,
) -> sqlx::Result<Option<WorkflowId>> {
    let found = sqlx::query_scalar!(
        r#"
        -- find the workflow of a backfill
        SELECT b.workflow_id
          FROM backfills b JOIN workflows w ON w.id = b.workflow_id
         WHERE b.id = $1 AND ($2::bigint IS NULL OR w.team_id = $2)
        "#,
        id,
        team_id,
    )
    .fetch_optional(db)
    .await?;
    Ok(found.map(WorkflowId))
}

/// Returns a running backfill for its next step, without `succeeded`, which would read each of its runs.
pub(super) async fn find_running(tx: &mut PgConnection, id: Uuid) -> sqlx::Result<Option<Backfill>> {
    let row = sqlx::query_as!(
        Row,
        r#"
        -- find a running backfill; it counts its live runs among the live runs of the workflow, which are few
        SELECT b.id, b.workflow_id, b.start_at, b.end_at, b.run_order AS "run_order: Order",
               b.only_decided AS "only_decided: Only", b.max_concurrent, b.state AS "state: State", b.cursor_at,
               b.timing AS "timing: Timing", b.timing_revision, b.total, b.started, b.requested_by, b.created_on,
               b.updated_on, b.finished_on,
               (SELECT count(*) FROM runs r
                 WHERE r.workflow_id = b.workflow_id AND r.state IN ('accepted', 'queued', 'running')
                   AND r.backfill_id = b.id) AS "live!",
               0::bigint AS "succeeded!"
          FROM backfills b
         WHERE b.id = $1 AND b.state = 'running'
        "#,
        id,
    )
    .fetch_optional(tx)
    .await?;
    Ok(row.map(Backfill::from))
}

/// Returns the backfill of this workflow that has not ended.
pub(super) async fn find_unfinished(tx: &mut PgConnection, workflow: WorkflowId) -> sqlx::Result<Option<Uuid>> {
    sqlx::query_scalar!(
        r#"
        -- an unfinished backfill of a workflow
        SELECT id FROM backfills WHERE workflow_id = $1 AND state IN ('running', 'paused') LIMIT 1
        "#,
        workflow.0,
    )
    .fetch_optional(tx)
    .await
}

/// Lists the backfills that create runs, each with its workflow, in the order of their ids, which is that of their creation.
pub(super) async fn list_running(db: &mut PgConnection) -> sqlx::Result<Vec<(Uuid, i64)>> {
    let rows = sqlx::query!(
        r#"
        -- running backfills
        SELECT id, workflow_id FROM backfills WHERE state = 'running' ORDER BY id
        "#
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.workflow_id)).collect())
}

/// Lists the runs of a backfill that no executor has started.
pub(super) async fn list_unstarted_runs(tx: &mut PgConnection, id: Uuid) -> sqlx::Result<Vec<Uuid>> {
    sqlx::query_scalar!(
        r#"
        -- runs of a backfill that have not started
        SELECT id FROM runs WHERE backfill_id = $1 AND state IN ('accepted', 'queued')
        "#,
        id,
    )
    .fetch_all(tx)
    .await
}

pub(super) async fn insert_backfill(
    tx: &mut PgConnection,
    id: Uuid,
    workflow: WorkflowId,
    request: &BackfillRequest,
    timing_revision: Option<i64>,
    total: usize,
    edit: &Edit,
) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- insert a backfill
        INSERT INTO backfills (id, workflow_id, start_at, end_at, run_order, only_decided, max_concurrent, state,
                               total, requested_by, created_on, updated_on, timing, timing_revision)
        VALUES ($1, $2, $3, $4, $5, $6, $7, 'running', $8, $9, $10, $10, $11, $12)
        "#,
        id,
        workflow.0,
        request.start,
        request.end,
        request.order as Order,
        request.only as Only,
        request.max_concurrent,
        i64::try_from(total).unwrap_or(i64::MAX),
        edit.actor,
        edit.now,
        request.timing as Timing,
        timing_revision,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Advances the cursor, in the transaction that creates the runs up to it.
pub(super) async fn advance_backfill(
    tx: &mut PgConnection,
    id: Uuid,
    cursor: Option<DateTime<Utc>>,
    started: usize,
    now: DateTime<Utc>,
) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- advance a backfill
        UPDATE backfills SET cursor_at = $2, started = started + $3, updated_on = $4 WHERE id = $1
        "#,
        id,
        cursor,
        i64::try_from(started).unwrap_or(i64::MAX),
        now,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Pauses the running backfills that were requested up to `until`; returns how many.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn pause_running(tx: &mut PgConnection, until: DateTime<Utc>, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let done = sqlx::query!(
        r#"
        -- pause running backfills: those of a backup, whose next times may have run before the loss
        UPDATE backfills SET state = 'paused', updated_on = $2 WHERE state = 'running' AND created_on <= $1
        "#,
        until,
        now,
    )
    .execute(tx)
    .await?;
    Ok(done.rows_affected())
}

pub(super) async fn enter_state(tx: &mut PgConnection, id: Uuid, state: State, now: DateTime<Utc>) -> sqlx::Result<()> {
    let ended = matches!(state, State::Cancelled | State::Finished).then_some(now);
    sqlx::query!(
        r#"
        -- change the state of a backfill; a final state does not change
        UPDATE backfills
           SET state = $2, updated_on = $3, finished_on = $4
         WHERE id = $1 AND state IN ('running', 'paused')
        "#,
        id,
        state as State,
        now,
        ended,
    )
    .execute(tx)
    .await
    .map(drop)
}

pub(super) struct Row {
    pub(super) id: Uuid,
    pub(super) workflow_id: i64,
    pub(super) start_at: DateTime<Utc>,
    pub(super) end_at: DateTime<Utc>,
    pub(super) run_order: Order,
    pub(super) only_decided: Only,
    pub(super) max_concurrent: i32,
    pub(super) state: State,
    pub(super) cursor_at: Option<DateTime<Utc>>,
    pub(super) timing: Timing,
    pub(super) timing_revision: Option<i64>,
    pub(super) total: i64,
    pub(super) started: i64,
    pub(super) live: i64,
    pub(super) succeeded: i64,
    pub(super) requested_by: String,
    pub(super) created_on: DateTime<Utc>,
    pub(super) updated_on: DateTime<Utc>,
    pub(super) finished_on: Option<DateTime<Utc>>,
}

impl From<Row> for Backfill {
    fn from(row: Row) -> Self {
        let request = BackfillRequest {
            start: row.start_at,
            end: row.end_at,
            order: row.run_order,
            only: row.only_decided,
            timing: row.timing,
            max_concurrent: row.max_concurrent,
        };
        Self {
            id: row.id,
            workflow_id: row.workflow_id,
            request,
            timing_revision: row.timing_revision,
            state: row.state,
            cursor: row.cursor_at,
            total: row.total,
            started: row.started,
            live: row.live,
            succeeded: row.succeeded,
            requested_by: row.requested_by,
            created_on: row.created_on,
            updated_on: row.updated_on,
            finished_on: row.finished_on,
        }
    }
}
