//! Step 7 of 7: how an executor takes a run, holds it, and lets go.
//!
//! A claim raises `attempt`. Each later statement names instance and attempt, so that an executor
//! that lost its run can change nothing about it; what it did all the same is kept as a late result.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{RunState, Trigger};
use crate::policies::Overlap;
use crate::teams::SigningSecret;

/// A run that this instance executes now.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The run.
    pub id: Uuid,
    /// Its workflow.
    pub workflow_id: i64,
    /// What started it.
    pub trigger: Trigger,
    /// The nominal time.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// Which attempt this is; the fence of every later statement.
    pub attempt: i32,
    /// Answers that have failed.
    pub tries: i32,
    /// Times that it went on after its instance died.
    pub recoveries: i32,
    /// What to do.
    pub action: Value,
    /// What to do it with.
    pub inputs: Value,
    /// How long this attempt may take.
    pub timeout_secs: i32,
    /// Answers that may fail.
    pub max_attempts: i32,
    /// Whether others may wait for this run's slot.
    pub overlap_policy: Overlap,
    /// Failed runs in a row that pause the workflow.
    pub pause_after_failures: Option<i32>,
    /// Signs the team's http actions.
    pub signing_secret: SigningSecret,
    /// The workflow's cron, for the context.
    pub cron_schedule: Option<String>,
    /// The workflow's timezone, for the context.
    pub timezone: Option<String>,
    /// The workflow's end, for the context.
    pub ends_at: Option<DateTime<Utc>>,
    /// The nominal time of the run before this one.
    pub last_scheduled_time: Option<DateTime<Utc>>,
}

/// How a run ended.
pub struct Finished<'a> {
    /// A terminal state.
    pub state: RunState,
    /// What the action answered.
    pub result: Option<&'a Value>,
    /// Why it failed.
    pub error: Option<&'a str>,
    /// 1 if this attempt's answer failed.
    pub failed_tries: i32,
}

/// Whether a run was still ours to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It was.
    Ours,
    /// Somebody else has it, or it is gone; nothing was changed.
    Lost,
}

/// A run whose lease was renewed.
#[derive(Clone, Copy, Debug)]
pub struct Beat {
    /// Which.
    pub id: Uuid,
    /// Its attempt.
    pub attempt: i32,
    /// Whether somebody asked to cancel it.
    pub is_cancelled: bool,
}

/// Takes up to `limit` accepted runs whose time has come, the oldest first.
///
/// # Errors
/// The database's.
pub async fn claim(
    db: &mut PgConnection,
    instance: Uuid,
    limit: i64,
    now: DateTime<Utc>,
) -> sqlx::Result<Vec<Claimed>> {
    sqlx::query_as!(
        Claimed,
        r#"
        -- claim runs: MATERIALIZED, or a nested loop would lock more than LIMIT
        WITH due AS MATERIALIZED (
            SELECT id FROM runs
             WHERE state = 'accepted' AND run_after <= $3
             ORDER BY run_after
             LIMIT $2
               FOR UPDATE SKIP LOCKED
        ), claimed AS (
            UPDATE runs r
               SET state = 'running', attempt = attempt + 1, started_on = $3,
                   locked_by = $1, locked_at = cronbox_now()
              FROM due
             WHERE r.id = due.id AND r.state = 'accepted'
            RETURNING r.*
        )
        SELECT c.id, c.workflow_id, c.trigger AS "trigger: Trigger", c.scheduled_time, c.attempt, c.tries, c.recoveries,
               w.action, COALESCE(c.inputs, w.starting_inputs) AS "inputs!", w.timeout_secs, w.max_attempts,
               w.overlap_policy AS "overlap_policy: Overlap", w.pause_after_failures, t.signing_secret AS "signing_secret: SigningSecret",
               w.cron_schedule, w.timezone, w.ends_at,
               (SELECT max(o.scheduled_time) FROM occurrences o
                 WHERE o.workflow_id = c.workflow_id AND o.scheduled_time < COALESCE(c.scheduled_time, $3)
                   AND o.run_id IS NOT NULL) AS last_scheduled_time
          FROM claimed c JOIN workflows w ON w.id = c.workflow_id JOIN teams t ON t.id = w.team_id
        "#,
        instance,
        limit,
        now,
    )
    .fetch_all(db)
    .await
}

/// Writes how a run ended, if it is still ours.
///
/// # Errors
/// The database's.
pub async fn finish(
    db: &mut PgConnection,
    instance: Uuid,
    run: &Claimed,
    finished: &Finished<'_>,
    now: DateTime<Utc>,
) -> sqlx::Result<Held> {
    let done = sqlx::query!(
        r#"
        -- finish a run: only this attempt of this instance, and never twice
        UPDATE runs
           SET state = $4, result = $5, error = $6, finished_on = $7, tries = tries + $8,
               duration_ms = (EXTRACT(EPOCH FROM $7 - started_on) * 1000)::bigint,
               locked_by = NULL, locked_at = NULL
         WHERE id = $1 AND state = 'running' AND locked_by = $2 AND attempt = $3
        "#,
        run.id,
        instance,
        run.attempt,
        finished.state as super::RunState,
        finished.result,
        finished.error,
        now,
        finished.failed_tries,
    )
    .execute(db)
    .await?;
    Ok(if done.rows_affected() == 0 { Held::Lost } else { Held::Ours })
}

/// Has a run whose answer failed tried again later, if it is still ours and nobody asked to cancel it.
///
/// # Errors
/// The database's.
pub async fn try_again(
    db: &mut PgConnection,
    instance: Uuid,
    run: &Claimed,
    error: Option<&str>,
    run_after: DateTime<Utc>,
) -> sqlx::Result<Held> {
    let done = sqlx::query!(
        r#"
        -- try a run again: the pause is in the row, so that it outlives this instance
        UPDATE runs
           SET state = 'accepted', tries = tries + 1, run_after = $4, error = $5, locked_by = NULL, locked_at = NULL
         WHERE id = $1 AND state = 'running' AND locked_by = $2 AND attempt = $3 AND cancel_requested_on IS NULL
        "#,
        run.id,
        instance,
        run.attempt,
        run_after,
        error,
    )
    .execute(db)
    .await?;
    Ok(if done.rows_affected() == 0 { Held::Lost } else { Held::Ours })
}

/// Keeps what an attempt came to after it had lost the run; the run's own state does not change.
///
/// # Errors
/// The database's.
pub async fn keep_late(db: &mut PgConnection, run: &Claimed, state: RunState, late: &Value) -> sqlx::Result<Held> {
    let done = sqlx::query!(
        r#"
        -- keep a late result, unless it is what stands: then the word of our own commit was lost on its way
        UPDATE runs SET late_result = $4 WHERE id = $1 AND NOT (attempt = $2 AND state = $3)
        "#,
        run.id,
        run.attempt,
        state as RunState,
        late,
    )
    .execute(&mut *db)
    .await?;
    Ok(if done.rows_affected() == 0 && stands(db, run.id).await? { Held::Ours } else { Held::Lost })
}

async fn stands(db: &mut PgConnection, id: Uuid) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"
        -- whether a run is there at all: its workflow may have been deleted
        SELECT EXISTS (SELECT FROM runs WHERE id = $1) AS "exists!"
        "#,
        id,
    )
    .fetch_one(db)
    .await
}

/// Whether a run of a workflow waits for a slot.
///
/// # Errors
/// The database's.
pub async fn any_queued(db: &mut PgConnection, workflow_id: i64) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"
        -- whether a run waits for a slot
        SELECT EXISTS (SELECT FROM runs WHERE workflow_id = $1 AND state = 'queued') AS "exists!"
        "#,
        workflow_id,
    )
    .fetch_one(db)
    .await
}

/// Renews the leases of all runs of an instance.
///
/// # Errors
/// The database's.
pub async fn heartbeat(db: &mut PgConnection, instance: Uuid) -> sqlx::Result<Vec<Beat>> {
    sqlx::query_as!(
        Beat,
        r#"
        -- heartbeat: what does not come back is not ours any more
        UPDATE runs SET locked_at = cronbox_now()
         WHERE state = 'running' AND locked_by = $1
        RETURNING id, attempt, cancel_requested_on IS NOT NULL AS "is_cancelled!"
        "#,
        instance,
    )
    .fetch_all(db)
    .await
}
