//! Step 7 of 7: all that is known of one run.

use chrono::{DateTime, Utc};
use db::PgConnection;
use serde_json::Value;
use uuid::Uuid;

/// What only the view of one run has.
#[derive(Clone, Debug)]
pub struct RunDetail {
    /// The team of its workflow.
    pub team_id: i64,
    /// The occurrence that it runs; `None` = manual.
    pub occurrence_id: Option<Uuid>,
    /// The run that it repeats: the first one, however often it was repeated.
    pub retry_of: Option<Uuid>,
    /// The backfill that created it.
    pub backfill_id: Option<Uuid>,
    /// The inputs of this run alone, with its marked values.
    pub inputs: Option<Value>,
    /// Answers that failed.
    pub tries: i32,
    /// Times that it went on after its instance was lost.
    pub recoveries: i32,
    /// Attempts that their instance handed over.
    pub handed_over: i32,
    /// How many of these may have reached the receiver.
    pub cut_off: i32,
    /// Not to be started before.
    pub run_after: DateTime<Utc>,
    /// When a caller, or the policy `replace`, requested its end.
    pub cancel_requested_on: Option<DateTime<Utc>>,
    /// Why its end was requested; `None` = a caller requested it.
    pub cancel_reason: Option<String>,
    /// The instance that executes it.
    pub locked_by: Option<Uuid>,
    /// What an attempt answered after it had lost the run.
    pub late_result: Option<Value>,
    /// The trace of the request that created it, 32 hex digits.
    pub trace_id: Option<String>,
}

/// Returns the details of a run; the caller has checked that it may be seen.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_detail(db: &mut PgConnection, id: Uuid) -> sqlx::Result<Option<RunDetail>> {
    sqlx::query_as!(
        RunDetail,
        r#"
        -- find the details of a run
        SELECT team_id AS "team_id!", occurrence_id, retry_of, backfill_id, inputs, tries AS "tries!",
               recoveries AS "recoveries!", handed_over AS "handed_over!", cut_off AS "cut_off!", run_after AS "run_after!",
               cancel_requested_on, cancel_reason, NULLIF(locked_by, '00000000-0000-0000-0000-000000000000') AS locked_by,
               late_result, NULLIF(split_part(traceparent, '-', 2), '') AS trace_id
          FROM runs
         WHERE id = $1
        "#,
        id,
    )
    .fetch_optional(db)
    .await
}

/// Returns the last time of a workflow before `before` that has run, however long ago it was.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_last_scheduled_time(
    db: &mut PgConnection,
    workflow_id: i64,
    before: DateTime<Utc>,
) -> sqlx::Result<Option<DateTime<Utc>>> {
    sqlx::query_scalar!(
        r#"
        -- the last time before this one that has run, as a claim reads it
        SELECT last_run_before($1, $2)
        "#,
        workflow_id,
        before,
    )
    .fetch_one(db)
    .await
}
