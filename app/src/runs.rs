//! Step 7 of 7: executions of workflows, and the statements on the table `runs`.
//!
//! A run is accepted in the transaction of its occurrence. An executor claims it by a guarded
//! UPDATE that raises `attempt`; every later UPDATE names that attempt, so that an executor that
//! lost its run can change nothing.

mod abandon;
mod cancel;
mod claim;
mod hand_over;
mod next_try;

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use serde_json::Value;
use uuid::Uuid;

pub use abandon::abandon;
pub use cancel::{Cancelled, cancel, cancel_live};
pub use claim::{
    Beat, Claimed, Fence, Finished, Found, Held, Lease, Slots, any_queued, claim, find_after_loss, finish,
    hand_over_unknown, keep_late, release, renew_leases, try_again,
};
pub use hand_over::{CUT_OFF, Sent, hand_over};
pub use next_try::next_try;

/// What started a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A fire of its schedule.
    Schedule,
    /// A person.
    Manual,
    /// The catch-up policy.
    CatchUp,
    /// A backfill.
    Backfill,
    /// A person, again.
    Retry,
}

impl Trigger {
    /// Every trigger that there is.
    pub const ALL: [Self; 5] = [Self::Schedule, Self::Manual, Self::CatchUp, Self::Backfill, Self::Retry];

    /// The word of the column.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Trigger::Schedule => "schedule",
            Trigger::Manual => "manual",
            Trigger::CatchUp => "catch_up",
            Trigger::Backfill => "backfill",
            Trigger::Retry => "retry",
        }
    }
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Will be executed; a crash loses none.
    Accepted,
    /// Waits for a slot.
    Queued,
    /// An executor is at it.
    Running,
    /// Final: it did what it should.
    Succeeded,
    /// Final: it did not.
    Failed,
    /// Final: it took too long.
    TimedOut,
    /// Final: a person stopped it.
    Cancelled,
    /// Final: it was given up.
    Abandoned,
}

impl RunState {
    /// Whether it never changes any more.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        !matches!(self, RunState::Accepted | RunState::Queued | RunState::Running)
    }

    /// The state as a sentence says it.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            RunState::Accepted => "accepted",
            RunState::Queued => "queued",
            RunState::Running => "running",
            RunState::Succeeded => "succeeded",
            RunState::Failed => "failed",
            RunState::TimedOut => "timed out",
            RunState::Cancelled => "cancelled",
            RunState::Abandoned => "abandoned",
        }
    }
}

/// One execution.
#[derive(Clone, Debug)]
pub struct Run {
    /// Identity.
    pub id: Uuid,
    /// The workflow.
    pub workflow_id: i64,
    /// What started it.
    pub trigger: Trigger,
    /// Where it stands.
    pub state: RunState,
    /// The nominal time, none for a run by hand.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// Claims so far.
    pub attempt: i32,
    /// When it was accepted.
    pub created_on: DateTime<Utc>,
    /// When this attempt started.
    pub started_on: Option<DateTime<Utc>>,
    /// When it came to its end.
    pub finished_on: Option<DateTime<Utc>>,
    /// Milliseconds from start to end.
    pub duration_ms: Option<i64>,
    /// What the action answered.
    pub result: Option<Value>,
    /// Why it failed.
    pub error: Option<String>,
}

/// A run to accept.
pub struct New {
    /// Its identity, chosen by the caller so that the occurrence can name it.
    pub id: Uuid,
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// The occurrence that it runs.
    pub occurrence_id: Option<Uuid>,
    /// What started it.
    pub trigger: Trigger,
    /// Accepted or queued, as [`crate::overlap::verdict`] says.
    pub state: RunState,
    /// The nominal time.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// Not to be started before.
    pub run_after: DateTime<Utc>,
    /// Inputs of this run alone, none = the workflow's.
    pub inputs: Option<Value>,
    /// The backfill that asked for it.
    pub backfill_id: Option<Uuid>,
    /// The business clock.
    pub now: DateTime<Utc>,
}

/// Accepts a run, or queues it; from the commit on it will be executed, whoever crashes.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn accept(tx: &mut PgConnection, new: &New) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- accept a run, in the state that the overlap policy gave it
        INSERT INTO runs (id, workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, inputs,
                          backfill_id, created_on)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        "#,
        new.id,
        new.workflow_id.0,
        new.occurrence_id,
        new.trigger.as_str(),
        new.state as RunState,
        new.scheduled_time,
        new.run_after,
        new.inputs,
        new.backfill_id,
        new.now,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// One run that a team may see.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find(db: &mut PgConnection, id: Uuid, team_id: Option<i64>) -> sqlx::Result<Option<Run>> {
    sqlx::query_as!(
        Run,
        r#"
        -- find a run
        SELECT r.id, r.workflow_id, r.trigger AS "trigger: Trigger", r.state AS "state: RunState", r.scheduled_time,
               r.attempt, r.created_on, r.started_on, r.finished_on, r.duration_ms, r.result, r.error
          FROM runs r JOIN workflows w ON w.id = r.workflow_id
         WHERE r.id = $1 AND ($2::bigint IS NULL OR w.team_id = $2)
        "#,
        id,
        team_id,
    )
    .fetch_optional(db)
    .await
}

/// Which runs a caller may see and wants to.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// One team's.
    pub team_id: Option<i64>,
    /// One workflow's.
    pub workflow_id: Option<i64>,
    /// In this state.
    pub state: Option<RunState>,
    /// Started by this.
    pub trigger: Option<Trigger>,
    /// Accepted at or after this time.
    pub from: Option<DateTime<Utc>>,
    /// Accepted before this time.
    pub to: Option<DateTime<Utc>>,
    /// Before this run, by the page before.
    pub before: Option<Uuid>,
    /// At most so many.
    pub limit: i64,
}

/// Runs, the newest first.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list(db: &mut PgConnection, filter: &Filter) -> sqlx::Result<Vec<Run>> {
    sqlx::query_as!(
        Run,
        r#"
        -- list runs by key: ids are made in the order of time (uuid v7)
        SELECT r.id, r.workflow_id, r.trigger AS "trigger: Trigger", r.state AS "state: RunState", r.scheduled_time,
               r.attempt, r.created_on, r.started_on, r.finished_on, r.duration_ms, r.result, r.error
          FROM runs r JOIN workflows w ON w.id = r.workflow_id
         WHERE ($1::bigint IS NULL OR w.team_id = $1)
           AND ($2::bigint IS NULL OR r.workflow_id = $2)
           AND ($3::text IS NULL OR r.state = $3)
           AND ($4::text IS NULL OR r.trigger = $4)
           AND ($5::timestamptz IS NULL OR r.created_on >= $5)
           AND ($6::timestamptz IS NULL OR r.created_on < $6)
           AND ($7::uuid IS NULL OR r.id < $7)
         ORDER BY r.id DESC
         LIMIT $8
        "#,
        filter.team_id,
        filter.workflow_id,
        filter.state as Option<RunState>,
        filter.trigger as Option<Trigger>,
        filter.from,
        filter.to,
        filter.before,
        filter.limit,
    )
    .fetch_all(db)
    .await
}
