//! Step 1 of 7: the statements on the table `workflows`.

use chrono::{DateTime, Utc};
use schedule::{Revision, WorkflowId};
use serde_json::{Map, Value};
use sqlx::PgConnection;
use sqlx::types::Json;

use super::{Filter, State, Sync, SyncStatus, Workflow};
use crate::spec::{Spec, Timing};

/// Holds a workflow's row; NO KEY, so that its runs can be inserted meanwhile.
pub(super) async fn hold(tx: &mut PgConnection, id: WorkflowId) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- hold a workflow
        SELECT id FROM workflows WHERE id = $1 FOR NO KEY UPDATE
        "#,
        id.0
    )
    .fetch_optional(tx)
    .await
    .map(drop)
}

/// One workflow with its sync.
///
/// # Errors
/// The database's.
pub async fn find(
    db: &mut PgConnection,
    id: WorkflowId,
    team_id: Option<i64>,
) -> sqlx::Result<Option<(Workflow, Sync)>> {
    let row = sqlx::query_as!(
        Row,
        r#"
        -- find a workflow
        SELECT w.id, w.team_id, w.name, w.description, w.is_api, w.action,
               w.starting_inputs AS "starting_inputs: Json<Map<String, Value>>", w.cron_schedule, w.timezone,
               w.state AS "state: State", w.pause_reason, w.starts_at, w.ends_at, w.version, w.revision,
               w.created_on, w.updated_on,
               sync_status(p) AS "sync_status!: SyncStatus",
               p.desired_revision AS "desired_revision?", p.applied_revision, p.last_error, p.applied_on
          FROM workflows w LEFT JOIN publications p ON p.workflow_id = w.id
         WHERE w.id = $1 AND ($2::bigint IS NULL OR w.team_id = $2)
        "#,
        id.0,
        team_id,
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(Row::split))
}

/// Workflows in the order of their ids.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection, filter: &Filter) -> sqlx::Result<Vec<(Workflow, Sync)>> {
    let rows = sqlx::query_as!(
        Row,
        r#"
        -- list workflows by key: a page never skips what another page's edits move
        SELECT w.id, w.team_id, w.name, w.description, w.is_api, w.action,
               w.starting_inputs AS "starting_inputs: Json<Map<String, Value>>", w.cron_schedule, w.timezone,
               w.state AS "state: State", w.pause_reason, w.starts_at, w.ends_at, w.version, w.revision,
               w.created_on, w.updated_on,
               sync_status(p) AS "sync_status!: SyncStatus",
               p.desired_revision AS "desired_revision?", p.applied_revision, p.last_error, p.applied_on
          FROM workflows w LEFT JOIN publications p ON p.workflow_id = w.id
         WHERE ($1::bigint IS NULL OR w.team_id = $1)
           AND ($2::text IS NULL OR w.state = $2)
           AND ($3::text IS NULL OR sync_status(p) = $3)
           AND ($4::text IS NULL OR strpos(lower(w.name || ' ' || coalesce(w.description, '')), lower($4)) > 0)
           AND ($5::bigint IS NULL OR w.id > $5)
         ORDER BY w.id
         LIMIT $6
        "#,
        filter.team_id,
        filter.state as Option<State>,
        filter.sync as Option<SyncStatus>,
        filter.q,
        filter.after,
        filter.limit,
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(Row::split).collect())
}

pub(super) async fn insert(
    tx: &mut PgConnection,
    team_id: i64,
    spec: &Spec,
    revision: i64,
    now: DateTime<Utc>,
) -> sqlx::Result<WorkflowId> {
    sqlx::query_scalar!(
        r#"
        -- insert a workflow
        INSERT INTO workflows (team_id, name, description, is_api, action, starting_inputs,
                               cron_schedule, timezone, starts_at, ends_at, revision, created_on, updated_on)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12)
        RETURNING id
        "#,
        team_id,
        spec.name,
        spec.description,
        spec.is_api,
        spec.action,
        Json(&spec.starting_inputs) as _,
        spec.timing.cron,
        spec.timing.timezone,
        spec.timing.starts_at,
        spec.timing.ends_at,
        revision,
        now,
    )
    .fetch_one(tx)
    .await
    .map(WorkflowId)
}

pub(super) async fn update(tx: &mut PgConnection, next: &Workflow) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- update a workflow that this transaction has locked
        UPDATE workflows
           SET name = $2, description = $3, is_api = $4, action = $5, starting_inputs = $6, cron_schedule = $7,
               timezone = $8, starts_at = $9, ends_at = $10, state = $11, pause_reason = $12,
               version = $13, revision = $14, updated_on = $15
         WHERE id = $1
        "#,
        next.id.0,
        next.spec.name,
        next.spec.description,
        next.spec.is_api,
        next.spec.action,
        Json(&next.spec.starting_inputs) as _,
        next.spec.timing.cron,
        next.spec.timing.timezone,
        next.spec.timing.starts_at,
        next.spec.timing.ends_at,
        next.state as State,
        next.pause_reason,
        next.version,
        next.revision.0,
        next.updated_on,
    )
    .execute(tx)
    .await
    .map(drop)
}

pub(super) async fn delete(tx: &mut PgConnection, id: WorkflowId) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- delete a workflow: its runs, occurrences and versions go along; publication and audit stay
        DELETE FROM workflows WHERE id = $1
        "#,
        id.0
    )
    .execute(tx)
    .await
    .map(drop)
}

struct Row {
    id: i64,
    team_id: i64,
    name: String,
    description: Option<String>,
    is_api: bool,
    action: Value,
    starting_inputs: Json<Map<String, Value>>,
    cron_schedule: Option<String>,
    timezone: Option<String>,
    state: State,
    pause_reason: Option<String>,
    starts_at: Option<DateTime<Utc>>,
    ends_at: Option<DateTime<Utc>>,
    version: i64,
    revision: i64,
    created_on: DateTime<Utc>,
    updated_on: DateTime<Utc>,
    sync_status: SyncStatus,
    desired_revision: Option<i64>,
    applied_revision: Option<i64>,
    last_error: Option<String>,
    applied_on: Option<DateTime<Utc>>,
}

impl Row {
    fn split(self) -> (Workflow, Sync) {
        let timing = Timing {
            cron: self.cron_schedule,
            timezone: self.timezone,
            starts_at: self.starts_at,
            ends_at: self.ends_at,
        };
        let spec = Spec {
            name: self.name,
            description: self.description,
            timing,
            is_api: self.is_api,
            action: self.action,
            starting_inputs: self.starting_inputs.0,
        };
        let workflow = Workflow {
            id: WorkflowId(self.id),
            team_id: self.team_id,
            spec,
            state: self.state,
            pause_reason: self.pause_reason,
            version: self.version,
            revision: Revision(self.revision),
            created_on: self.created_on,
            updated_on: self.updated_on,
        };
        let sync = Sync {
            status: self.sync_status,
            desired_revision: self.desired_revision,
            applied_revision: self.applied_revision,
            last_error: self.last_error,
            applied_at: self.applied_on,
        };
        (workflow, sync)
    }
}
