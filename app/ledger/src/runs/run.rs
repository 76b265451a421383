//! Step 7 of 7: a run, and the statements that accept and read it.

use chrono::{DateTime, Utc};
use db::PgConnection;
use serde_json::Value;
use uuid::Uuid;
use workflows::Workflow;
use workflows::trigger::Trigger;

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Will be executed; a crash loses no accepted run.
    Accepted,
    /// Waits for a slot.
    Queued,
    /// An executor executes it.
    Running,
    /// Final: its action succeeded.
    Succeeded,
    /// Final: its action failed.
    Failed,
    /// Final: it exceeded its timeout.
    TimedOut,
    /// Final: it was cancelled on request.
    Cancelled,
    /// Final: it was abandoned.
    Abandoned,
}

impl RunState {
    /// Whether the state is final.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        !matches!(self, RunState::Accepted | RunState::Queued | RunState::Running)
    }

    /// The state as it is stored, and as JSON has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::TimedOut => "timed_out",
            other => other.in_words(),
        }
    }

    /// The state as text in a sentence.
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
    /// The id.
    pub id: Uuid,
    /// The workflow.
    pub workflow_id: i64,
    /// What started it.
    pub trigger: Trigger,
    /// The state.
    pub state: RunState,
    /// The scheduled time; `None` for a manual run.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// How often it was claimed.
    pub attempt: i32,
    /// When it was accepted.
    pub created_on: DateTime<Utc>,
    /// When this attempt started.
    pub started_on: Option<DateTime<Utc>>,
    /// When it ended.
    pub finished_on: Option<DateTime<Utc>>,
    /// Milliseconds from start to end.
    pub duration_ms: Option<i64>,
    /// What the action answered, as JSON; `None` in a list if it is larger than 1 KiB.
    pub result: Option<String>,
    /// The stored size of a result that a list leaves out.
    pub result_bytes: Option<i32>,
    /// Why it failed.
    pub error: Option<String>,
}

/// A run to accept.
pub struct New {
    /// The id, which the caller chooses so that the occurrence can name it.
    pub id: Uuid,
    /// The occurrence that it runs.
    pub occurrence_id: Option<Uuid>,
    /// What started it.
    pub trigger: Trigger,
    /// The scheduled time.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// The run does not start before this time.
    pub run_after: DateTime<Utc>,
    /// Inputs of this run only; `None` = the workflow's.
    pub inputs: Option<Value>,
    /// The backfill that created it.
    pub backfill_id: Option<Uuid>,
    /// W3C trace context of what created it, which its attempts continue.
    pub traceparent: Option<String>,
    /// The business clock.
    pub now: DateTime<Utc>,
}

impl New {
    /// A run of no occurrence, with the workflow's inputs, which may start at once.
    #[must_use]
    pub fn unscheduled(id: Uuid, trigger: Trigger, now: DateTime<Utc>) -> Self {
        Self {
            id,
            occurrence_id: None,
            trigger,
            scheduled_time: None,
            run_after: now,
            inputs: None,
            backfill_id: None,
            traceparent: None,
            now,
        }
    }
}

/// Writes a run of a workflow in the state that the overlap policy decided: accepted or queued.
///
/// After the commit an executor will execute it, even if instances crash. The claim reads `team_id`.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn accept_run(tx: &mut PgConnection, workflow: &Workflow, state: RunState, new: &New) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- accept a run, in the state that the overlap policy gave it
        INSERT INTO runs (id, workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, inputs,
                          backfill_id, created_on, team_id, traceparent)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        "#,
        new.id,
        workflow.id.0,
        new.occurrence_id,
        new.trigger.as_str(),
        state as RunState,
        new.scheduled_time,
        new.run_after,
        new.inputs,
        new.backfill_id,
        new.now,
        workflow.team_id,
        new.traceparent,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Returns one run that the team may see.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_run(db: &mut PgConnection, id: Uuid, team_id: Option<i64>) -> sqlx::Result<Option<Run>> {
    sqlx::query_as!(
        Run,
        r#"
        -- find a run
        SELECT r.id, r.workflow_id, r.trigger AS "trigger: Trigger", r.state AS "state: RunState", r.scheduled_time,
               r.attempt, r.created_on, r.started_on, r.finished_on, r.duration_ms,
               COALESCE(r.result, (SELECT x.result FROM run_results x WHERE x.run_id = $1))::text AS result,
               NULL::integer AS result_bytes, r.error
          FROM runs r JOIN workflows w ON w.id = r.workflow_id
         WHERE r.id = $1 AND ($2::bigint IS NULL OR w.team_id = $2)
        "#,
        id,
        team_id,
    )
    .fetch_optional(db)
    .await
}
