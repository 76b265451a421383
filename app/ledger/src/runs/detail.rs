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
               recoveries AS "recoveries!", handed_over AS "handed_over!", run_after AS "run_after!",
               cancel_requested_on, cancel_reason, NULLIF(locked_by, '00000000-0000-0000-0000-000000000000') AS locked_by,
               late_result
          FROM runs
         WHERE id = $1
        "#,
        id,
    )
    .fetch_optional(db)
    .await
}
