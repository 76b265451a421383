//! Step 7 of 7: the ledger. An occurrence is a due time of a schedule with its one decision.

pub mod list;
pub mod of_all;
pub mod span;

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::{Fire, WorkflowId};
use uuid::Uuid;
use workflows::reasons::ReasonCode;

/// The decision about a due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The time ran.
    Fired,
    /// The time ran late, by the catch-up policy.
    CaughtUp,
    /// The time ran by a backfill.
    Backfilled,
    /// The time did not run, because the previous run had not ended.
    SkippedOverlap,
    /// The time did not run, because the workflow was paused.
    SkippedPaused,
    /// The time did not run, because no fire arrived in time.
    Missed,
    /// The run of the time was abandoned.
    Abandoned,
}

impl Decision {
    /// All decisions.
    pub const ALL: [Self; 7] = [
        Self::Fired,
        Self::CaughtUp,
        Self::Backfilled,
        Self::SkippedOverlap,
        Self::SkippedPaused,
        Self::Missed,
        Self::Abandoned,
    ];

    /// The value in the column.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Decision::Fired => "fired",
            Decision::CaughtUp => "caught_up",
            Decision::Backfilled => "backfilled",
            Decision::SkippedOverlap => "skipped_overlap",
            Decision::SkippedPaused => "skipped_paused",
            Decision::Missed => "missed",
            Decision::Abandoned => "abandoned",
        }
    }
}

/// One row of the ledger.
#[derive(Clone, Debug)]
pub struct Occurrence {
    /// The id.
    pub id: Uuid,
    /// The workflow.
    pub workflow_id: i64,
    /// The due time.
    pub scheduled_time: DateTime<Utc>,
    /// The decision.
    pub decision: Decision,
    /// The reason of the decision: a code of [`workflows::reasons`], or the text of the person who paused the workflow.
    pub reason: Option<String>,
    /// The schedule version that made it due.
    pub revision: Option<i64>,
    /// Its first run.
    pub run_id: Option<Uuid>,
    /// Seconds from the scheduled time to the decision.
    pub lateness_s: i64,
    /// When it was decided.
    pub decided_on: DateTime<Utc>,
}

/// A decision to record.
pub struct Entry<'a> {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// The due time.
    pub time: DateTime<Utc>,
    /// The fire that requested the decision; `None` if no fire did.
    pub fire: Option<&'a Fire>,
    /// The decision.
    pub decision: Decision,
    /// The reason, if the decision needs one: a stored [`workflows::reasons::Reason`], or a text of a person.
    pub reason: Option<&'a str>,
    /// The schedule version that made it due.
    pub revision: i64,
    /// The run, if there is one.
    pub run_id: Option<Uuid>,
    /// The business clock.
    pub now: DateTime<Utc>,
}

/// Which transaction decided a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// This transaction; the id of the row that it wrote.
    Ours(Uuid),
    /// Another transaction; nothing was written.
    Theirs,
}

/// Records a decision; UNIQUE allows one. A `missed` time may still run, a `skipped_paused` one by a backfill (ADR 13).
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn record_occurrence(tx: &mut PgConnection, entry: &Entry<'_>) -> sqlx::Result<Recorded> {
    let lateness_s = (entry.now - entry.time).num_seconds();
    let id = sqlx::query_scalar!(
        r#"
        -- record a decision: an existing row wins, but a missed time may still run
        INSERT INTO occurrences AS o (id, workflow_id, scheduled_time, decision, reason, revision, run_id, raw_time,
                                      execution_id, attempt, lateness_s, decided_on, created_on, updated_on)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, $12)
        ON CONFLICT ON CONSTRAINT occurrences_workflow_id_scheduled_time_key DO UPDATE
           SET decision = excluded.decision, reason = excluded.reason, run_id = excluded.run_id,
               raw_time = COALESCE(excluded.raw_time, o.raw_time),
               execution_id = COALESCE(excluded.execution_id, o.execution_id),
               attempt = COALESCE(excluded.attempt, o.attempt),
               lateness_s = excluded.lateness_s, decided_on = excluded.decided_on, updated_on = excluded.updated_on
         WHERE o.decision = 'missed' AND excluded.decision IN ('fired', 'caught_up', 'backfilled')
            OR o.decision = 'skipped_paused' AND excluded.decision = 'backfilled'
        RETURNING id
        "#,
        workflows::id::make_id(entry.now),
        entry.workflow_id.0,
        entry.time,
        entry.decision.as_str(),
        entry.reason,
        entry.revision,
        entry.run_id,
        entry.fire.map(|fire| &fire.raw_time),
        entry.fire.and_then(|fire| fire.execution_id.as_ref()),
        entry.fire.and_then(|fire| fire.attempt),
        lateness_s,
        entry.now,
    )
    .fetch_optional(tx)
    .await?;
    Ok(id.map_or(Recorded::Theirs, Recorded::Ours))
}

/// Records that these times of these runs, which have ended, were skipped, because a newer time replaced them.
///
/// They name no run any more, so that a repeated fire gets the answer of a skipped time.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn skip_replaced(
    tx: &mut PgConnection,
    runs: &[Uuid],
    times: &[DateTime<Utc>],
    reason: ReasonCode,
    now: DateTime<Utc>,
) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- skip the times of replaced runs: only the decision fired becomes skipped_overlap. $4 and $5 are the bounds of the
        -- times, so that Postgres plans only their days
        UPDATE occurrences o
           SET decision = 'skipped_overlap', reason = $2, run_id = NULL, updated_on = $3
          FROM runs_ended r
         WHERE r.id = ANY($1) AND o.workflow_id = r.workflow_id AND o.scheduled_time = r.scheduled_time AND o.run_id = r.id
           AND o.scheduled_time BETWEEN $4 AND $5 AND o.decision = 'fired'
        "#,
        runs,
        reason.as_str(),
        now,
        times.iter().min().copied(),
        times.iter().max().copied(),
    )
    .execute(tx)
    .await
    .map(drop)
}

/// The decision about a time, if there is one.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_occurrence(
    db: &mut PgConnection,
    workflow: WorkflowId,
    time: DateTime<Utc>,
) -> sqlx::Result<Option<Occurrence>> {
    sqlx::query_as!(
        Occurrence,
        r#"
        -- find an occurrence
        SELECT id, workflow_id, scheduled_time, decision AS "decision: Decision", reason, revision, run_id,
               lateness_s, decided_on
          FROM occurrences
         WHERE workflow_id = $1 AND scheduled_time = $2
        "#,
        workflow.0,
        time,
    )
    .fetch_optional(db)
    .await
}

/// The decision about a due time, and the database's time when it was read.
pub struct Current {
    /// The database's time of the read.
    pub now: DateTime<Utc>,
    /// The decision, if there is one.
    pub decision: Option<Decision>,
    /// The reason of the decision.
    pub reason: Option<String>,
    /// Its first run.
    pub run_id: Option<Uuid>,
}

/// Reads the database's time and the decision about a due time in one statement, because every fire needs both.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_with_time(db: &mut PgConnection, workflow: WorkflowId, time: DateTime<Utc>) -> sqlx::Result<Current> {
    sqlx::query_as!(
        Current,
        r#"
        -- the database's time, and the decision about a time
        SELECT cronbox_now() AS "now!", o.decision AS "decision?: Decision", o.reason, o.run_id
          FROM (SELECT) AS always
          LEFT JOIN occurrences o ON o.workflow_id = $1 AND o.scheduled_time = $2
                -- a deleted workflow keeps its rows for a while
                AND EXISTS (SELECT FROM workflows w WHERE w.id = $1)
        "#,
        workflow.0,
        time,
    )
    .fetch_one(db)
    .await
}
