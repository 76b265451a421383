//! Steps 1 and 2 of 7: the statements that write a workflow, its versions and its place in the ledger, and enqueue its
//! event; `read.rs` has those that read it.

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use sqlx::types::Json;

use super::{PausedBy, State, Workflow};
use crate::audit::{self, Edit, Entry};
use crate::definition::policies::{CatchUp, OnLost, Overlap};
use crate::definition::spec::Spec;
use crate::outbox::{Enqueued, Event, insert_event};
use crate::sync::Sync;

pub(super) async fn insert_workflow(
    tx: &mut PgConnection,
    team_id: i64,
    spec: &Spec,
    revision: i64,
    managed_by: Option<&str>,
    now: DateTime<Utc>,
) -> sqlx::Result<WorkflowId> {
    let (policies, usage) = (&spec.policies, spec.count_usage());
    sqlx::query_scalar!(
        r#"
        -- insert a workflow
        INSERT INTO workflows (team_id, name, description, is_api, action, starting_inputs,
                               cron_schedule, timezone, starts_at, ends_at, revision, created_on, updated_on,
                               overlap_policy, max_concurrent, catch_up_policy, catch_up_window_secs, spread_secs,
                               timeout_secs, max_attempts, on_lost, pause_after_failures, managed_by,
                               fires_per_hour, input_bytes, labels)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
                $23, $24, $25)
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
        policies.overlap as Overlap,
        policies.max_concurrent,
        policies.catch_up as CatchUp,
        policies.catch_up_window_secs,
        policies.spread_secs,
        policies.timeout_secs,
        policies.max_attempts,
        policies.on_lost as OnLost,
        policies.pause_after_failures,
        managed_by,
        usage.fires_per_hour,
        usage.input_bytes,
        Json(&spec.labels) as _,
    )
    .fetch_one(tx)
    .await
    .map(WorkflowId)
}

/// Since when another timing or state is in force, and whether it activates the schedule anew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) since: DateTime<Utc>,
    pub(super) is_activated: bool,
    /// The change was known in advance, as the end of a pause is, so earlier decisions already considered it.
    pub(super) is_foreseen: bool,
    /// A later time may be decided already: one was due soon, and a fire may arrive some minutes early.
    pub(super) may_be_decided: bool,
}

/// Gives the statement that writes the row of a workflow, and the values of its parameters $1 to $30, to a macro that
/// completes it. Lists the columns once; `query!` accepts only literals.
macro_rules! write_row {
    ($next:ident, $complete:ident, $($rest:tt)*) => {{
        let (policies, usage) = (&$next.spec.policies, $next.spec.count_usage());
        $complete!(
            r#"
        UPDATE workflows
           SET name = $2, description = $3, is_api = $4, action = $5, starting_inputs = $6, cron_schedule = $7,
               timezone = $8, starts_at = $9, ends_at = $10, state = $11, pause_reason = $12,
               version = $13, revision = $14, updated_on = $15, pause_until = $16, overlap_policy = $17,
               max_concurrent = $18, catch_up_policy = $19, catch_up_window_secs = $20, spread_secs = $21,
               timeout_secs = $22, max_attempts = $23, on_lost = $24, pause_after_failures = $25, managed_by = $26,
               fires_per_hour = $27, input_bytes = $28, labels = $29, paused_by = $30,
               -- attempts that run keep their timeout, which is 24 hours at most: the job `timeouts` reads these
               timeout_before_secs = CASE WHEN $22 < timeout_secs THEN
                                               GREATEST(timeout_secs,
                                                        CASE WHEN timeout_shortened_on > $15::timestamptz - INTERVAL '24 hours'
                                                             THEN timeout_before_secs END)
                                          ELSE timeout_before_secs END,
               timeout_shortened_on = CASE WHEN $22 < timeout_secs THEN $15::timestamptz ELSE timeout_shortened_on END
         WHERE id = $1
        "#,
            [
                $next.id.0,
                $next.spec.name,
                $next.spec.description,
                $next.spec.is_api,
                $next.spec.action,
                Json(&$next.spec.starting_inputs) as _,
                $next.spec.timing.cron,
                $next.spec.timing.timezone,
                $next.spec.timing.starts_at,
                $next.spec.timing.ends_at,
                $next.state as State,
                $next.pause_reason,
                $next.version,
                $next.revision.0,
                $next.updated_on,
                $next.pause_until,
                policies.overlap as Overlap,
                policies.max_concurrent,
                policies.catch_up as CatchUp,
                policies.catch_up_window_secs,
                policies.spread_secs,
                policies.timeout_secs,
                policies.max_attempts,
                policies.on_lost as OnLost,
                policies.pause_after_failures,
                $next.managed_by,
                usage.fires_per_hour,
                usage.input_bytes,
                Json(&$next.spec.labels) as _,
                $next.paused_by as Option<PausedBy>
            ],
            $($rest)*
        )
    }};
}

/// Writes a workflow of which the same times are due as before.
pub(super) async fn update_workflow(tx: &mut PgConnection, next: &Workflow) -> sqlx::Result<()> {
    macro_rules! update {
        ($row:tt, [$($values:tt)*],) => {
            sqlx::query!(
                r#"
        -- update a workflow that this transaction has locked
        "# + $row,
                $($values)*
            )
        };
    }
    write_row!(next, update,).execute(tx).await.map(drop)
}

/// Makes the watchdog check a workflow that follows its shard, because the end of a pause must not pass unseen.
pub(super) async fn watch_pause(tx: &mut PgConnection, id: WorkflowId) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- watch a paused workflow from where its shard is
        UPDATE ledger l
           SET cursor = ledger_decided_through(l.cursor, l.watch_at, s.decided_through),
               watch_at = INTERVAL '1 microsecond' + ledger_decided_through(l.cursor, l.watch_at, s.decided_through)
          FROM watchdog_shards s
         WHERE l.workflow_id = $1 AND l.watch_at IS NULL AND s.shard = l.shard
        "#,
        id.0,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Writes a workflow and a new version, because its due times change; the watchdog checks from there again, and the
/// publisher checks the workflow after the commit. Returns the synchronization as the transaction leaves it.
///
/// One statement, because every edit waits for it; its snapshot is later than the lock. The version is in force since
/// `since`, or since just after the last version, the newest decision and the cursor, even if the clock went back:
/// existing decisions do not change, and each later time is enumerated. The ledger's cursor begins just before the first
/// version, because a time at its very beginning is due. A workflow that followed its shard ceases to: its times may be of
/// two versions.
pub(super) async fn update_and_enqueue(
    tx: &mut PgConnection,
    next: &Workflow,
    change: Change,
    event: &Event,
    edit: &Edit,
    entry: Entry<'_>,
) -> sqlx::Result<Sync> {
    macro_rules! complete {
        ($row:tt, [$($values:tt)*], $entry:ident) => {
            insert_event!(
                &mut *tx,
                $entry,
                [
                    r#"
        -- update a workflow that this transaction has locked, and its due times, and enqueue its event
        WITH progress AS MATERIALIZED (
            SELECT ledger_decided_through(l.cursor, l.watch_at, s.decided_through) AS cursor
              FROM ledger l JOIN watchdog_shards s ON s.shard = l.shard
             WHERE l.workflow_id = $1
        ), version AS (
            INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, timezone, state, starts_at, ends_at)
            SELECT $1, $14,
                   GREATEST($31::timestamptz,
                            INTERVAL '1 microsecond' + (SELECT max(valid_from) FROM schedule_versions WHERE workflow_id = $1),
                            -- it reads each day from $31 on, so only if there may be a decision. If the clock went back,
                            -- the decisions of the meantime are counted in later minutes
                            CASE WHEN NOT $33
                                  AND ($34
                                       OR EXISTS (SELECT FROM decision_minutes WHERE team_id = $35 AND minute > $31)
                                       OR EXISTS (SELECT FROM decision_sums WHERE team_id = $35 AND minute > $31))
                                 THEN INTERVAL '1 microsecond' + last_decision_from($1, $31) END,
                            INTERVAL '1 microsecond' + (SELECT cursor FROM progress)),
                   $7, $8, $11, $9, $10
            RETURNING valid_from
        ), watched AS (
            INSERT INTO ledger AS l (workflow_id, cursor, watch_at, activated_on)
            SELECT $1, COALESCE((SELECT cursor FROM progress), valid_from - INTERVAL '1 microsecond'), valid_from,
                   CASE WHEN $32 THEN valid_from END
              FROM version
            ON CONFLICT (workflow_id) DO UPDATE
               SET cursor = GREATEST(l.cursor, excluded.cursor),
                   watch_at = CASE WHEN l.watch_at IS NULL THEN excluded.cursor + INTERVAL '1 microsecond'
                                   ELSE LEAST(l.watch_at, excluded.watch_at) END,
                   activated_on = COALESCE(excluded.activated_on, l.activated_on)
        ), updated AS ("#
                    $row
                    r#"), "#
                ],
                "$1, $14",
                "$35",
                "$36, $37, $38",
                "($38, $39, $40, $41, $42, $43, $44, $45, $46, $47)",
                [
                    $($values)*,
                    change.since,
                    change.is_activated,
                    change.is_foreseen,
                    change.may_be_decided,
                    next.team_id,
                    event.op.as_str(),
                    Json(&event.payload) as _,
                ]
            )
        };
    }
    let row = audit::Row::of_entry(edit, entry);
    let enqueued = write_row!(next, complete, row)?;
    enqueued.into_sync(tx, event, &row).await
}

/// Writes the first version of a new workflow.
pub(super) async fn begin_versions(
    tx: &mut PgConnection,
    workflow: &Workflow,
    since: DateTime<Utc>,
) -> sqlx::Result<()> {
    let timing = &workflow.spec.timing;
    sqlx::query!(
        r#"
        -- begin the schedule versions of a workflow; the later ones are written with its row
        INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, timezone, state, starts_at, ends_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        "#,
        workflow.id.0,
        workflow.revision.0,
        since,
        timing.cron,
        timing.timezone,
        workflow.state as State,
        timing.starts_at,
        timing.ends_at,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Makes the watchdog check a new workflow from its first version on.
///
/// Its cursor begins just before it, because a time at its very beginning is due.
pub(super) async fn watch_workflow(tx: &mut PgConnection, id: WorkflowId, since: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- watch a new workflow
        INSERT INTO ledger (workflow_id, cursor, watch_at, activated_on)
        VALUES ($1, $2::timestamptz - INTERVAL '1 microsecond', $2, $2)
        "#,
        id.0,
        since,
    )
    .execute(tx)
    .await
    .map(drop)
}

pub(super) async fn delete_workflow(tx: &mut PgConnection, id: WorkflowId) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- delete a workflow: its versions are deleted with it; a trigger leaves a tombstone, by which the job prune
        -- removes its runs and occurrences; publication and audit remain
        DELETE FROM workflows WHERE id = $1
        "#,
        id.0
    )
    .execute(tx)
    .await
    .map(drop)
}
