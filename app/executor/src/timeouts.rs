//! Step 7 of 7: ends runs that did not end at their timeout. A job.
//!
//! An executor stops an attempt at the timeout that its workflow had at the claim. An attempt that its executor has renewed after that, and
//! that has not ended a minute later, is stuck: the job ends it like an attempt that timed out, and the executor learns
//! at its next heartbeat that it has lost the run. If the lease was not renewed after the timeout, the instance may be
//! gone, so the run is lost, not slow (`recovery.rs`).

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use db::{PgConnection, PgPool};
use ledger::admission::queue;
use ledger::job_failures;
use schedule::WorkflowId;
use uuid::Uuid;
use workflows::reasons::ReasonCode;

use crate::next_try::next_try;

/// Name of the job in the table `jobs`.
pub const JOB: &str = "timeouts";
/// How many runs one pass processes.
const BATCH: i64 = 100;

/// A run that still executes this long after its workflow's timeout is stuck.
const HARD_TIMEOUT_MARGIN: TimeDelta = TimeDelta::seconds(60);

struct Stuck {
    id: Uuid,
    workflow_id: i64,
    tries: i32,
    max_attempts: i32,
    is_cancelled: bool,
}

/// The result of one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Attempts that it ended.
    pub tries: usize,
    /// Workflows whose statements failed.
    pub failed: u64,
    /// The workflows of the runs that ended with them.
    ended: BTreeSet<i64>,
}

impl Pass {
    /// Whether the batch was full: there may be more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.tries >= usize::try_from(BATCH).unwrap_or(usize::MAX)
    }

    /// Returns what it did, in a sentence.
    #[must_use]
    pub fn in_words(&self) -> String {
        format!("{} runs have timed out", self.tries)
    }
}

/// Ends the attempts that still run a minute after their timeout, and promotes queued runs to the slots.
///
/// A workflow that fails is logged and counted, and the pass continues.
///
/// # Errors
/// Fails if the database fails; earlier transactions remain committed.
pub async fn end_stuck_runs(pool: &PgPool, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let mut pass = match end_stuck(pool, None, now).await {
        // One run makes the statements for all fail, so give each its own transaction.
        Err(error) if job_failures::concerns_one_workflow(&error) => end_stuck_singly(pool, now).await?,
        done => done?,
    };
    for workflow in &pass.ended {
        if let Err(error) = queue::advance_workflow(pool, WorkflowId(*workflow), now).await {
            job_failures::skip_failed(JOB, *workflow, error)?;
            pass.failed += 1;
        }
    }
    Ok(pass)
}

/// Ends a batch of stuck attempts, or one of them, in one transaction.
async fn end_stuck(pool: &PgPool, only: Option<Uuid>, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let mut tx = db::begin_transaction(pool).await?;
    let done = end_locked(&mut tx, only, now).await;
    let (stuck, ended) = tx.commit_or_rollback(done).await?;
    for run in &stuck {
        tracing::error!(run_id = %run.id, "run {} did not stop at its timeout; the job `timeouts` ended it", run.id);
    }
    Ok(Pass { tries: stuck.len(), ended, failed: 0 })
}

/// Returns the attempts that were stuck, and the workflows whose runs ended with them.
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

/// Ends stuck attempts one by one; failures are logged and counted.
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

/// The latest start of an attempt that may be stuck, for a timeout of 0 s.
fn stuck_since(now: DateTime<Utc>) -> DateTime<Utc> {
    now - HARD_TIMEOUT_MARGIN
}

/// Lists stuck runs with their workflows; more than one pass locks, because failing ones may come first.
async fn stuck_runs(db: &mut PgConnection, now: DateTime<Utc>) -> sqlx::Result<Vec<(Uuid, i64)>> {
    let rows = sqlx::query!(
        r#"
        -- stuck runs: this statement locks none; each is locked one by one later. Their timeouts as below
        SELECT r.id, r.workflow_id
          FROM runs r JOIN workflows w ON w.id = r.workflow_id
         CROSS JOIN LATERAL (SELECT make_interval(secs => CASE WHEN r.started_on < w.timeout_shortened_on + INTERVAL '10 minutes'
                                                               THEN GREATEST(w.timeout_secs, w.timeout_before_secs)
                                                               ELSE w.timeout_secs END) AS timeout) t
         WHERE r.state = 'running' AND r.started_on + t.timeout <= $1
           AND r.locked_at > r.started_on + t.timeout
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
        -- lock stuck runs: their leases were renewed after the timeout, so an executor still has them. An attempt has the
        -- timeout of its claim, and an edit may have shortened it since. A claim may have read the row of the workflow
        -- just before that edit was committed, and a schedules file with many workflows is committed minutes after its
        -- time, so the longer one counts ten minutes longer
        SELECT r.id, r.workflow_id, r.tries, w.max_attempts, r.cancel_requested_on IS NOT NULL AS "is_cancelled!"
          FROM runs r JOIN workflows w ON w.id = r.workflow_id
         CROSS JOIN LATERAL (SELECT make_interval(secs => CASE WHEN r.started_on < w.timeout_shortened_on + INTERVAL '10 minutes'
                                                               THEN GREATEST(w.timeout_secs, w.timeout_before_secs)
                                                               ELSE w.timeout_secs END) AS timeout) t
         WHERE r.state = 'running' AND r.started_on + t.timeout <= $1
           AND r.locked_at > r.started_on + t.timeout
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
        -- try a stuck run again: the executor that has it loses it
        WITH again AS (
            UPDATE runs_live
               SET state = 'accepted', tries = tries + 1, run_after = $2, error = $3,
                   locked_by = NULL, locked_at = NULL, lease_until = NULL
             WHERE id = $1
            RETURNING id, attempt, started_on, error
        )
        INSERT INTO run_attempts (run_id, attempt, started_on, ended_on, outcome, error)
        SELECT id, attempt, started_on, cronbox_now(), 'failed', error FROM again
        "#,
        id,
        run_after,
        ReasonCode::StuckAfterTimeout.as_str(),
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn end(tx: &mut PgConnection, id: Uuid, now: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- end a stuck run
        WITH timed_out AS (
            DELETE FROM runs_live r WHERE r.id = $1 RETURNING r AS run
        )
        INSERT INTO runs_ended
        SELECT e.*
          FROM timed_out
         CROSS JOIN LATERAL ended_run(run, 'timed_out', $2, $3, failed_tries => 1,
                                      took_ms => (EXTRACT(EPOCH FROM $2 - (run).started_on) * 1000)::bigint) AS e
        "#,
        id,
        now,
        ReasonCode::StuckAfterTimeout.as_str(),
    )
    .execute(tx)
    .await
    .map(drop)
}
