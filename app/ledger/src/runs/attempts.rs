//! Step 7 of 7: the attempts of a run before its last one, which is in the row of the run.

use chrono::{DateTime, Utc};
use db::PgConnection;
use uuid::Uuid;
use workflows::id::first_run_id_of;

/// How many rows one statement of the job `prune` removes.
const REMOVED_A_BATCH: i64 = 10_000;
/// A run that was lost or handed over again and again has no longer timeline.
const MOST: i64 = 200;

/// An attempt that ended while its run went on.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Its number, from 1 on.
    pub attempt: i32,
    /// When an executor began it.
    pub started_on: Option<DateTime<Utc>>,
    /// When it ended.
    pub ended_on: DateTime<Utc>,
    /// How it ended.
    pub outcome: AttemptEnd,
    /// Why it failed.
    pub error: Option<String>,
}

/// How an attempt ended after which its run went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum AttemptEnd {
    /// Its action failed.
    Failed,
    /// Its instance was lost.
    Lost,
    /// Its instance stopped.
    HandedOver,
}

/// Lists the earlier attempts of a run in their order, the newest 200.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_attempts(db: &mut PgConnection, run: Uuid) -> sqlx::Result<Vec<Attempt>> {
    let mut newest_first = sqlx::query_as!(
        Attempt,
        r#"
        -- list the attempts of a run
        SELECT attempt, started_on, ended_on, outcome AS "outcome: AttemptEnd", error
          FROM run_attempts
         WHERE run_id = $1
         ORDER BY run_id DESC, attempt DESC
         LIMIT $2
        "#,
        run,
        MOST,
    )
    .fetch_all(db)
    .await?;
    newest_first.reverse();
    Ok(newest_first)
}

/// Removes some attempts of runs that were accepted before a time.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn remove_old_attempts(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove old attempts
        WITH old AS MATERIALIZED (
            SELECT run_id, attempt FROM run_attempts WHERE run_id < $1 ORDER BY run_id, attempt LIMIT $2 FOR UPDATE SKIP LOCKED
        )
        DELETE FROM run_attempts a USING old WHERE a.run_id = old.run_id AND a.attempt = old.attempt
        "#,
        first_run_id_of(before),
        REMOVED_A_BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}
