//! Step 7 of 7: ends runs that should have ended by themselves. A job.
//!
//! An executor stops an attempt at its workflow's timeout. An attempt that its executor has renewed after that, and that
//! has not ended a minute later, is stuck: the try ends here, like one that was answered too late, and its executor
//! learns at its next heartbeat that it has lost the run. A run that was not renewed after its timeout is another case:
//! its executor may be gone, so it is lost, not slow (`recover.rs`).

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use db::{PgConnection, PgPool};
use schedule::WorkflowId;
use uuid::Uuid;

use crate::job_failures;
use crate::next_try::next_try;
use crate::queue;

/// Its name in the table `jobs`.
pub const JOB: &str = "timeouts";
/// Runs in one pass.
const BATCH: i64 = 100;

/// A run is stuck, not slow, if it still runs so long after its workflow's timeout.
const HARD_TIMEOUT_MARGIN: TimeDelta = TimeDelta::seconds(60);

/// Why such a try failed.
const REASON: &str = "it did not end at its timeout and was ended from outside";

struct Stuck {
    id: Uuid,
    workflow_id: i64,
    tries: i32,
    max_attempts: i32,
    is_cancelled: bool,
}

/// What one pass came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Tries that it ended.
    pub tries: usize,
    /// Workflows whose statements failed.
    pub failed: u64,
    /// The workflows of the runs that it ended with them.
    ended: BTreeSet<i64>,
}

impl Pass {
    /// Whether it took as many as one pass may: there may be more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.tries >= usize::try_from(BATCH).unwrap_or(usize::MAX)
    }

    /// What it did, in a sentence.
    #[must_use]
    pub fn in_words(&self) -> String {
        format!("{} runs have timed out", self.tries)
    }
}

/// Ends the tries that run a minute past their timeout, and hands their slots on.
///
/// A workflow that fails is logged and counted, and the pass goes on.
///
/// # Errors
/// The database fails; what was done until then stays.
pub async fn pass(pool: &PgPool, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let mut pass = match end_stuck(pool, None, now).await {
        // One of them fails the statements of all: each has a transaction of its own.
        Err(error) if job_failures::concerns_one_workflow(&error) => end_stuck_singly(pool, now).await?,
        done => done?,
    };
    for workflow in &pass.ended {
        if let Err(error) = queue::advance(pool, WorkflowId(*workflow), now).await {
            job_failures::skip_failed(JOB, *workflow, error)?;
            pass.failed += 1;
        }
    }
    Ok(pass)
}

/// Ends a batch of stuck tries, or one of them, in one transaction.
async fn end_stuck(pool: &PgPool, only: Option<Uuid>, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let mut tx = db::begin(pool).await?;
    let done = end_locked(&mut tx, only, now).await;
    let (stuck, ended) = tx.finish(done).await?;
    for run in &stuck {
        tracing::error!(run_id = %run.id, "run {} did not end at its timeout and was ended from outside", run.id);
    }
    Ok(Pass { tries: stuck.len(), ended, failed: 0 })
}

/// The tries that were stuck, and the workflows whose runs ended by it.
async fn end_locked(
    tx: &mut PgConnection,
    only: Option<Uuid>,
    now: DateTime<Utc>,
) -> sqlx::Result<(Vec<Stuck>, BTreeSet<i64>)> {
    let stuck = lock_stuck(tx, only, now).await?;
    let mut ended = BTreeSet::new();
    for run in &stuck {
        match next_try(run.tries, run.max_attempts, None, now).filter(|_| !run.is_cancelled) {
            Some(run_after) => try_again(tx, run.id, run_after).await?,
            None => {
                end(tx, run.id, now).await?;
                ended.insert(run.workflow_id);
            }
        }
    }
    Ok((stuck, ended))
}

/// Ends stuck tries one by one; those that fail are logged and counted.
async fn end_stuck_singly(pool: &PgPool, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let mut done = Pass::default();
    let stuck = stuck_runs(&mut *pool.acquire().await?, now).await?;
    for (id, workflow_id) in stuck {
        match end_stuck(pool, Some(id), now).await {
            Ok(pass) => {
                done.tries += pass.tries;
                done.ended.extend(pass.ended);
            }
            Err(error) => {
                job_failures::skip_failed(JOB, workflow_id, error)?;
                done.failed += 1;
            }
        }
    }
    Ok(done)
}

/// The latest start of a try that may be stuck, by a timeout of 0 s.
fn stuck_since(now: DateTime<Utc>) -> DateTime<Utc> {
    now - HARD_TIMEOUT_MARGIN
}

/// Stuck runs with their workflows, more than a pass locks: failing ones may come first.
async fn stuck_runs(db: &mut PgConnection, now: DateTime<Utc>) -> sqlx::Result<Vec<(Uuid, i64)>> {
    let rows = sqlx::query!(
        r#"
        -- stuck runs: locked one by one later
        SELECT r.id, r.workflow_id
          FROM runs r JOIN workflows w ON w.id = r.workflow_id
         WHERE r.state = 'running' AND r.started_on + make_interval(secs => w.timeout_secs) <= $1
           AND r.locked_at > r.started_on + make_interval(secs => w.timeout_secs)
           AND r.lease_until > cronbox_now()
         ORDER BY r.started_on
         LIMIT $2
        "#,
        stuck_since(now),
        10 * BATCH,
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.workflow_id)).collect())
}

async fn lock_stuck(tx: &mut PgConnection, only: Option<Uuid>, now: DateTime<Utc>) -> sqlx::Result<Vec<Stuck>> {
    sqlx::query_as!(
        Stuck,
        r#"
        -- lock stuck runs: renewed after their timeout, so an executor is at them
        SELECT r.id, r.workflow_id, r.tries, w.max_attempts, r.cancel_requested_on IS NOT NULL AS "is_cancelled!"
          FROM runs r JOIN workflows w ON w.id = r.workflow_id
         WHERE r.state = 'running' AND r.started_on + make_interval(secs => w.timeout_secs) <= $1
           AND r.locked_at > r.started_on + make_interval(secs => w.timeout_secs)
           AND r.lease_until > cronbox_now()
           AND ($3::uuid IS NULL OR r.id = $3)
         ORDER BY r.started_on
         LIMIT $2
           FOR UPDATE OF r SKIP LOCKED
        "#,
        stuck_since(now),
        BATCH,
        only,
    )
    .fetch_all(tx)
    .await
}

async fn try_again(tx: &mut PgConnection, id: Uuid, run_after: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- try a stuck run again: its executor loses it
        UPDATE runs
           SET state = 'accepted', tries = tries + 1, run_after = $2, error = $3,
               locked_by = NULL, locked_at = NULL, lease_until = NULL
         WHERE id = $1
        "#,
        id,
        run_after,
        REASON,
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn end(tx: &mut PgConnection, id: Uuid, now: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- end a stuck run
        UPDATE runs
           SET state = 'timed_out', tries = tries + 1, finished_on = $2, error = $3,
               duration_ms = (EXTRACT(EPOCH FROM $2 - started_on) * 1000)::bigint,
               locked_by = NULL, locked_at = NULL, lease_until = NULL
         WHERE id = $1
        "#,
        id,
        now,
        REASON,
    )
    .execute(tx)
    .await
    .map(drop)
}
