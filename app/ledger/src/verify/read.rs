//! Step 7 of 7: what verification reads, page by page: the workflows, their decisions and their runs.

use chrono::{DateTime, Utc};
use db::PgConnection;
use uuid::Uuid;
use workflows::id::first_run_id_of;

use super::Span;
use crate::occurrences::Decision;
use crate::runs::{RunState, Trigger};

/// How many workflows one statement reads; a page compares the first of them, up to a number of due times.
const PAGE: i64 = 500;

pub(super) struct Workflow {
    pub(super) id: i64,
    pub(super) team_id: i64,
    pub(super) ledger_since: Option<DateTime<Utc>>,
    /// The instant up to which its times are decided; `None`: the latest that can be verified.
    pub(super) decided_through: Option<DateTime<Utc>>,
}

/// A decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    pub(super) workflow_id: i64,
    pub(super) scheduled_time: DateTime<Utc>,
    pub(super) decision: Decision,
    pub(super) run_id: Option<Uuid>,
    pub(super) decided_on: DateTime<Utc>,
    pub(super) is_early: bool,
}

/// A run of a time. Retries, which no decision names, are left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) workflow_id: i64,
    pub(super) scheduled_time: DateTime<Utc>,
    pub(super) id: Uuid,
    pub(super) trigger: Trigger,
    pub(super) state: RunState,
    pub(super) never_started: bool,
}

pub(super) async fn use_one_snapshot(tx: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").execute(tx).await.map(drop)
}

pub(super) async fn read_workflows(tx: &mut PgConnection, from: i64) -> sqlx::Result<Vec<Workflow>> {
    sqlx::query_as!(
        Workflow,
        r#"
        -- a page of workflows, whatever their state: an archived workflow had due times, too
        SELECT w.id AS "id!", w.team_id AS "team_id!", w.ledger_since,
               CASE WHEN f.workflow_id IS NOT NULL THEN
                    ledger_decided_through(l.cursor, l.watch_at, s.decided_through)
               END AS "decided_through?"
          FROM workflows w
          LEFT JOIN ledger l ON l.workflow_id = w.id
          LEFT JOIN watchdog_shards s ON s.shard = l.shard
          LEFT JOIN job_failures f ON f.job = 'watchdog' AND f.workflow_id = w.id
         WHERE w.id >= $1
         ORDER BY w.id
         LIMIT $2
        "#,
        from,
        PAGE,
    )
    .fetch_all(tx)
    .await
}

pub(super) async fn read_decisions(tx: &mut PgConnection, ids: &[i64], slice: Span) -> sqlx::Result<Vec<Decided>> {
    sqlx::query_as!(
        Decided,
        r#"
        -- the decisions of a slice, of a page of workflows
        SELECT workflow_id, scheduled_time, decision AS "decision: Decision", run_id, decided_on,
               created_on < scheduled_time AS "is_early!"
          FROM occurrences
         WHERE workflow_id = ANY($1) AND scheduled_time >= $2 AND scheduled_time < $3
        "#,
        ids,
        slice.from,
        slice.to,
    )
    .fetch_all(tx)
    .await
}

pub(super) async fn read_runs(tx: &mut PgConnection, ids: &[i64], slice: Span) -> sqlx::Result<Vec<Run>> {
    sqlx::query_as!(
        Run,
        r#"
        -- the runs of a slice's times, of a page of workflows; a person may have repeated a run any number of times. No
        -- run is made before its time by more than the clock skew, so Postgres plans no partition of earlier days
        SELECT workflow_id, scheduled_time AS "scheduled_time!", id, trigger AS "trigger: Trigger",
               state AS "state: RunState", run_never_started(attempt, handed_over, cut_off) AS "never_started!"
          FROM runs
         WHERE workflow_id = ANY($1) AND scheduled_time >= $2 AND scheduled_time < $3 AND trigger <> 'retry'
           AND id >= $4
         ORDER BY id
        "#,
        ids,
        slice.from,
        slice.to,
        first_run_id_of(slice.from),
    )
    .fetch_all(tx)
    .await
}
