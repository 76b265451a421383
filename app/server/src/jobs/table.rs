//! Step 7 of 7: the statements on the table `jobs`. Leases and due times read `cronbox_now()`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use db::PgConnection;
use uuid::Uuid;

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum LastResult {
    /// It processed something.
    Success,
    /// It failed; `last_error` says why.
    Failed,
    /// There was nothing to do.
    Skipped,
}

/// The state of a job.
#[derive(Clone, Debug)]
pub struct Status {
    /// The job's name.
    pub name: String,
    /// The instance that runs it now.
    pub locked_by: Option<Uuid>,
    /// When that instance's lease expires.
    pub locked_until: Option<DateTime<Utc>>,
    /// When its last turn started.
    pub last_run: Option<DateTime<Utc>>,
    /// How long its last turn took, in milliseconds.
    pub last_duration_ms: Option<i64>,
    /// The result of its last turn.
    pub last_result: Option<LastResult>,
    /// Why its last turn failed.
    pub last_error: Option<String>,
    /// When it is due.
    pub next_run: DateTime<Utc>,
    /// Turns so far.
    pub run_count: i64,
    /// Failed turns so far.
    pub error_count: i64,
}

/// The result of a turn.
pub(super) struct Ended {
    pub(super) took: Duration,
    pub(super) result: LastResult,
    pub(super) error: Option<String>,
    pub(super) next_in: Duration,
}

/// Inserts the rows of jobs that have none.
pub(super) async fn register_jobs(db: &mut PgConnection, names: &[&str], waits: &[f64]) -> sqlx::Result<()> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    sqlx::query!(
        r#"
        -- register jobs: an earlier due time than the stored one wins; in order, because instances that start together
        -- would block each other
        INSERT INTO jobs (name, next_run)
        SELECT name, cronbox_now() + make_interval(secs => wait)
          FROM UNNEST($1::text[], $2::float8[]) AS j (name, wait)
         ORDER BY name
        ON CONFLICT (name) DO UPDATE SET next_run = LEAST(jobs.next_run, excluded.next_run)
        "#,
        &names,
        waits,
    )
    .execute(db)
    .await
    .map(drop)
}

/// Takes the jobs that are due and not leased.
pub(super) async fn take_due(
    db: &mut PgConnection,
    names: &[&str],
    instance: Uuid,
    lease: Duration,
    now: DateTime<Utc>,
) -> sqlx::Result<Vec<String>> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    sqlx::query_scalar!(
        r#"
        -- take jobs: the condition is checked again under the lock, so that only one of two instances gets a job; the
        -- turn is counted first, so that a crash counts
        UPDATE jobs
           SET locked_by = $2, locked_until = cronbox_now() + make_interval(secs => $3), last_run = $4,
               run_count = run_count + 1
         WHERE name = ANY($1) AND next_run <= cronbox_now()
           AND (locked_until IS NULL OR locked_until <= cronbox_now()) AND cronbox_hold() IS NULL
        RETURNING name
        "#,
        &names,
        instance,
        lease.as_secs_f64(),
        now,
    )
    .fetch_all(db)
    .await
}

/// Renews a lease; returns false if another instance has it now.
pub(super) async fn renew_lease(
    db: &mut PgConnection,
    name: &str,
    instance: Uuid,
    lease: Duration,
) -> sqlx::Result<bool> {
    let renewed = sqlx::query!(
        r#"
        -- renew a job's lease
        UPDATE jobs SET locked_until = cronbox_now() + make_interval(secs => $3) WHERE name = $1 AND locked_by = $2
        "#,
        name,
        instance,
        lease.as_secs_f64(),
    )
    .execute(db)
    .await?;
    Ok(renewed.rows_affected() > 0)
}

/// Writes the result of a turn and releases the job, if this instance still has the lease.
pub(super) async fn record_turn(db: &mut PgConnection, name: &str, instance: Uuid, ended: &Ended) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- settle a job's turn
        UPDATE jobs
           SET locked_by = NULL, locked_until = NULL, last_duration_ms = $3, last_result = $4, last_error = $5,
               next_run = cronbox_now() + make_interval(secs => $6),
               error_count = error_count + CASE WHEN $4 = 'failed' THEN 1 ELSE 0 END
         WHERE name = $1 AND locked_by = $2
        "#,
        name,
        instance,
        i64::try_from(ended.took.as_millis()).unwrap_or(i64::MAX),
        ended.result as LastResult,
        ended.error,
        ended.next_in.as_secs_f64(),
    )
    .execute(db)
    .await
    .map(drop)
}

/// Releases the jobs of an instance that shuts down; they stay due.
pub(super) async fn release_all(db: &mut PgConnection, instance: Uuid) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- release jobs: only those of this instance
        UPDATE jobs SET locked_by = NULL, locked_until = NULL WHERE locked_by = $1
        "#,
        instance,
    )
    .execute(db)
    .await
    .map(drop)
}

/// All jobs, by name.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_statuses(db: &mut PgConnection) -> sqlx::Result<Vec<Status>> {
    sqlx::query_as!(
        Status,
        r#"
        -- list jobs
        SELECT name, locked_by, locked_until, last_run, last_duration_ms, last_result AS "last_result: LastResult",
               last_error, next_run, run_count, error_count
          FROM jobs
         ORDER BY name
        "#
    )
    .fetch_all(db)
    .await
}
