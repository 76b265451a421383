//! Step 7 of 7: ends runs that did not end at their timeout. A job.
//!
//! An executor stops an attempt at its workflow's timeout. An attempt that its executor has renewed after that, and
//! that has not ended a minute later, is stuck: the job ends it like an attempt that timed out, and the executor learns
//! at its next heartbeat that it has lost the run. If the lease was not renewed after the timeout, the instance may be
//! gone, so the run is lost, not slow (`recover.rs`).

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use uuid::Uuid;

use crate::App;
use crate::clock;
use crate::config::HARD_TIMEOUT_MARGIN;
use crate::jobs::{self, Did};
use crate::queue;
use crate::runs;

/// Name of the job in the table `jobs`.
const JOB: &str = "timeouts";
/// How many runs one pass processes.
const BATCH: i64 = 100;

/// Why such an attempt failed.
const REASON: &str = "it did not end at its timeout and was ended from outside";

struct Stuck {
    id: Uuid,
    workflow_id: i64,
    tries: i32,
    max_attempts: i32,
    is_cancelled: bool,
}

/// The result of one pass.
#[derive(Default)]
struct Pass {
    /// Attempts that it ended.
    tries: usize,
    /// The workflows of the runs that ended with them.
    ended: BTreeSet<i64>,
}

/// Ends the attempts that still run a minute after their timeout.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn sweep(app: &App) -> anyhow::Result<Did> {
    let now = clock::database_time(app).await?;
    let mut failed = 0;
    let pass = match end_stuck(app, None, now).await {
        // One run makes the statements for all fail, so give each its own transaction.
        Err(error) if jobs::concerns_one_workflow(&error) => end_stuck_singly(app, now, &mut failed).await?,
        done => done?,
    };
    for workflow in &pass.ended {
        if let Err(error) = queue::advance(&app.pool, WorkflowId(*workflow), now).await {
            jobs::skip_failed(JOB, *workflow, error)?;
            failed += 1;
        }
    }
    app.wake.poke();
    jobs::fail_at_end(JOB, failed, &app.metrics)?;
    Ok(match pass.tries {
        0 => Did::Nothing,
        n if n >= usize::try_from(BATCH).unwrap_or(usize::MAX) => Did::Some(format!("{n} runs have timed out")),
        n => Did::All(format!("{n} runs have timed out")),
    })
}

/// Ends a batch of stuck attempts, or one of them, in one transaction.
async fn end_stuck(app: &App, only: Option<Uuid>, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let mut tx = db::begin(&app.pool).await?;
    let done = end_locked(&mut tx, only, now).await;
    let (stuck, ended) = tx.finish(done).await?;
    for run in &stuck {
        tracing::error!(run_id = %run.id, "run {} did not end at its timeout and was ended from outside", run.id);
    }
    Ok(Pass { tries: stuck.len(), ended })
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
        match runs::next_try(run.tries, run.max_attempts, None, now).filter(|_| !run.is_cancelled) {
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
async fn end_stuck_singly(app: &App, now: DateTime<Utc>, failed: &mut u64) -> sqlx::Result<Pass> {
    let mut done = Pass::default();
    let stuck = stuck_runs(&mut *app.pool.acquire().await?, now).await?;
    for (id, workflow_id) in stuck {
        match end_stuck(app, Some(id), now).await {
            Ok(pass) => {
                done.tries += pass.tries;
                done.ended.extend(pass.ended);
            }
            Err(error) => {
                jobs::skip_failed(JOB, workflow_id, error)?;
                *failed += 1;
            }
        }
    }
    Ok(done)
}

/// The latest start of an attempt that may be stuck, for a timeout of 0 s.
fn stuck_since(now: DateTime<Utc>) -> DateTime<Utc> {
    now - TimeDelta::from_std(HARD_TIMEOUT_MARGIN).unwrap_or_default()
}

/// Lists stuck runs with their workflows; more than one pass locks, because failing ones may come first.
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
