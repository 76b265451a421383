//! Step 2 of 7: the write half of the outbox; `operate.rs` is for operators.
//!
//! Creates and deletes call it inside their transaction, and `workflow/write.rs` ends the statement of a change with it; the
//! publisher drains the rows. A row says "check this
//! workflow", never "set this cron": order and repeats do no harm.

pub mod list;
pub mod operate;

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::{Revision, WorkflowId};
use serde::Serialize;
use sqlx::types::Json;

use crate::audit::{self, Edit, Entry};
use crate::sync::{Sync, SyncStatus};

/// What the edit requested. The publisher reads the current state of the workflow.
///
/// If the workflow's row is missing, only a delete event permits the removal of its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The workflow needs a schedule.
    Upsert,
    /// The workflow needs no schedule any more: the cron was cleared, or the workflow was archived or deleted.
    Delete,
}

impl Op {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Op::Upsert => "upsert",
            Op::Delete => "delete",
        }
    }
}

/// One row of the outbox.
pub struct Event {
    /// The workflow to check.
    pub workflow: WorkflowId,
    /// The revision that the edit made.
    pub revision: Revision,
    /// What the edit requested.
    pub op: Op,
    /// For audit, never replayed.
    pub payload: Payload,
}

/// What an outbox row stores of the edit.
#[derive(Serialize)]
pub struct Payload {
    /// The cron after the edit.
    pub cron_schedule: Option<String>,
    /// The timezone after the edit.
    pub timezone: Option<String>,
    /// The workflow's label.
    pub is_api: bool,
    /// The team that owns the workflow.
    pub team_id: i64,
    /// The revision that the edit made.
    pub revision: Revision,
    /// W3C trace context of the edit's request.
    pub traceparent: Option<String>,
}

/// The answer of a statement that enqueues an event: the synchronization of the workflow, which is known here, so that the
/// answer to an edit reads no row again.
pub(crate) struct Enqueued {
    pub(crate) is_followed: bool,
    pub(crate) status: SyncStatus,
    pub(crate) desired_revision: Option<i64>,
    pub(crate) applied_revision: Option<i64>,
    pub(crate) error_class: Option<String>,
    pub(crate) last_error: Option<String>,
    pub(crate) applied_on: Option<DateTime<Utc>>,
}

/// Ends a statement with the insert of an event and of the audit entry of its edit: one statement, because every edit waits
/// for it.
///
/// The caller gives the statements before, the parameters of workflow and revision, that of the team, those of operation,
/// payload and time, those of the audit entry, and the values of all parameters before those of the audit entry.
macro_rules! insert_event {
    ($tx:expr, $row:ident, [$($before:tt)*], $revision:tt, $team:tt, $event:tt, $entry:tt, [$($values:tt)*]) => {
        $crate::audit::insert_row!(
            Enqueued,
            $tx,
            $row,
            [
                $($before)*
                r#"
        -- enqueue: the publication first, so that a workflow's rows are inserted under its lock. An edit overtakes
        -- repairs: in its lane nothing new is due in the past, because claims do not read there. It does not end the
        -- backoff of a workflow that is edited in a loop during an outage (more than two superseded failures), which is
        -- at most 30 s. The publisher takes a backlog team by team, so it needs the team
        publication AS (
            INSERT INTO publications AS p (workflow_id, desired_revision, team_id, due_at)
            VALUES ("# $revision r#", "# $team r#", cronbox_now())
            ON CONFLICT (workflow_id) DO UPDATE
               SET desired_revision = GREATEST(p.desired_revision, excluded.desired_revision),
                   team_id = excluded.team_id,
                   due_at = CASE WHEN p.superseded > 2
                                 THEN LEAST(GREATEST(p.due_at, excluded.due_at), excluded.due_at + INTERVAL '30 seconds')
                                 WHEN p.is_repair THEN excluded.due_at
                                 ELSE LEAST(p.due_at, excluded.due_at) END,
                   is_repair = FALSE,
                   attempt_count = 0,
                   failures = 0,
                   error_class = NULL
            RETURNING workflow_id, sync_status(p) AS status, desired_revision, applied_revision, error_class, last_error,
                      applied_on
        ), event AS (
            INSERT INTO outbox_events (aggregate_id, op, payload, created_on)
            SELECT workflow_id, "# $event r#" FROM publication
        )
        "#
            ],
            $entry,
            r#"
        , (SELECT status FROM publication) AS "status!: crate::sync::SyncStatus", (SELECT desired_revision FROM publication),
          (SELECT applied_revision FROM publication), (SELECT error_class FROM publication),
          (SELECT last_error FROM publication), (SELECT applied_on FROM publication)
        "#,
            [$($values)*]
        )
    };
}
pub(crate) use insert_event;

/// Requests that the publisher check a workflow after the caller's transaction commits, and records the edit in the audit
/// log. For a workflow that is created or deleted: what changes one writes its row by the same statement.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(crate) async fn enqueue_event(
    tx: &mut PgConnection,
    event: &Event,
    edit: &Edit,
    entry: Entry<'_>,
) -> sqlx::Result<Sync> {
    let row = audit::Row::of_entry(edit, entry);
    let enqueued = insert_event!(
        &mut *tx,
        row,
        [r#"
        -- enqueue the event of a workflow that is created or deleted
        WITH "#],
        "$1, $2",
        "($4::jsonb ->> 'team_id')::bigint",
        "$3, $4, $5",
        "($5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        [event.workflow.0, event.revision.0, event.op.as_str(), Json(&event.payload) as _,]
    )?;
    enqueued.into_sync(tx, event, &row).await
}

impl Enqueued {
    /// Logs the event, shows the edit to the clients that follow, and returns the synchronization.
    pub(crate) async fn into_sync(
        self,
        tx: &mut PgConnection,
        event: &Event,
        row: &audit::Row<'_>,
    ) -> sqlx::Result<Sync> {
        tracing::info!(
            step = 2,
            workflow_id = event.workflow.0,
            revision = event.revision.0,
            "outbox: {} of workflow {} at revision {}",
            event.op.as_str(),
            event.workflow,
            event.revision,
        );
        row.write_event(tx, self.is_followed).await?;
        Ok(Sync {
            status: self.status,
            desired_revision: self.desired_revision,
            applied_revision: self.applied_revision,
            error_class: self.error_class,
            last_error: self.last_error,
            applied_at: self.applied_on,
        })
    }
}

/// Whether an orphan cleanup was enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrphanCleanup {
    /// The publisher will call EventBridge, whatever its records say about the schedule.
    Enqueued,
    /// The publisher never published this workflow; the sweep decides about schedules of unknown origin.
    NeverPublished,
}

/// Requests that the publisher check the schedule of a workflow that does not exist any more but fired.
///
/// If an edit requested the removal, this repeats the request. If the row is missing for another reason, this is no
/// delete event: the publisher keeps the schedule, and the orphan guard of the sweep decides.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn enqueue_orphan_cleanup(
    tx: &mut PgConnection,
    workflow: WorkflowId,
    now: DateTime<Utc>,
) -> sqlx::Result<OrphanCleanup> {
    let healed = sqlx::query!(
        r#"
        -- clean up an orphan: the last known state of the schedule (spec_hash) is wrong, so it is cleared and the
        -- publisher calls
        WITH publication AS (
            UPDATE publications
               SET spec_hash = NULL,
                   repairs = repairs + 1,
                   due_at = LEAST(due_at, cronbox_now()),
                   attempt_count = 0,
                   failures = 0,
                   error_class = NULL
             WHERE workflow_id = $1
            RETURNING workflow_id, desired_revision, removal_revision >= desired_revision AS is_removal_requested
        )
        INSERT INTO outbox_events (aggregate_id, op, payload, created_on)
        SELECT workflow_id,
               CASE WHEN is_removal_requested THEN 'delete' ELSE 'upsert' END,
               jsonb_build_object('revision', desired_revision),
               $2
          FROM publication
        "#,
        workflow.0,
        now,
    )
    .execute(tx)
    .await?;
    Ok(if healed.rows_affected() == 0 { OrphanCleanup::NeverPublished } else { OrphanCleanup::Enqueued })
}

/// The progress of the publisher with a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The publisher has not settled it yet.
    Open,
    /// EventBridge has applied it, or it failed permanently.
    Settled,
}

/// Returns the progress of the publisher with a revision of a workflow, which may be deleted by now.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_progress(db: &mut PgConnection, workflow: WorkflowId, revision: i64) -> sqlx::Result<Progress> {
    let open = sqlx::query_scalar!(
        r#"
        -- progress of a revision
        SELECT COALESCE(applied_revision, 0) < $2 AND sync_status(p) <> 'failed' AS "open!"
          FROM publications p
         WHERE workflow_id = $1
        "#,
        workflow.0,
        revision,
    )
    .fetch_optional(db)
    .await?;
    Ok(if open == Some(true) { Progress::Open } else { Progress::Settled })
}
