//! Step 7 of 7: how an executor takes a run, and how it lets go.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::Trigger;

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
    /// Which attempt this is; the fence of `finish` and `release`.
    pub attempt: i32,
    /// What to do.
    pub action: Value,
    /// What to do it with.
    pub starting_inputs: Json<Map<String, Value>>,
    /// The workflow's cron, for the context.
    pub cron_schedule: Option<String>,
    /// The workflow's timezone, for the context.
    pub timezone: Option<String>,
    /// The nominal time of the run before this one.
    pub last_scheduled_time: Option<DateTime<Utc>>,
}

/// How a run ended.
pub struct Finished<'a> {
    /// `succeeded` or `failed`.
    pub state: super::RunState,
    /// What the action answered.
    pub result: Option<&'a Value>,
    /// Why it failed.
    pub error: Option<&'a str>,
}

/// Whether a run was still ours to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It was.
    Ours,
    /// Somebody else has it, or it is gone; nothing was changed.
    Lost,
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
        SELECT c.id, c.workflow_id, c.trigger AS "trigger: Trigger", c.scheduled_time, c.attempt, w.action,
               w.starting_inputs AS "starting_inputs: Json<Map<String, Value>>", w.cron_schedule, w.timezone,
               (SELECT max(o.scheduled_time) FROM occurrences o
                 WHERE o.workflow_id = c.workflow_id AND o.scheduled_time < c.scheduled_time AND o.run_id IS NOT NULL)
                   AS last_scheduled_time
          FROM claimed c JOIN workflows w ON w.id = c.workflow_id
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
           SET state = $4, result = $5, error = $6, finished_on = $7,
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
    )
    .execute(db)
    .await?;
    Ok(if done.rows_affected() == 0 { Held::Lost } else { Held::Ours })
}

/// Gives back the runs that this instance holds, so that others take them.
///
/// # Errors
/// The database's.
pub async fn release_all(db: &mut PgConnection, instance: Uuid) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- release runs: only one's own
        UPDATE runs
           SET state = 'accepted', locked_by = NULL, locked_at = NULL
         WHERE state = 'running' AND locked_by = $1
        "#,
        instance,
    )
    .execute(db)
    .await
    .map(drop)
}
