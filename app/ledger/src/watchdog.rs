//! Step 7 of 7: decides every due time for which no fire arrived.
//!
//! EventBridge, the runner or this app may have been unavailable for a minute or a week; the watchdog depends on none
//! of them. It enumerates the due times by the schedule versions. Each workflow has its own transaction, under the
//! workflow's lock, in which the occurrences and the cursor commit together.

mod account;
mod due;
mod report;

use account::Account;
use chrono::{DateTime, TimeDelta, Utc};
use db::PgPool;
use schedule::WorkflowId;
use schedule::delivery::GRACE;
use workflows::try_lock_workflow;

use crate::job_failures;

pub use report::Pass;

/// Name of the job in the table `jobs`.
pub const JOB: &str = "watchdog";
/// How many workflows one statement of a pass reads.
const BATCH: i64 = 200;

/// Decides all times that were due up to [`GRACE`] ago, whatever the state of their workflow. `kept` is how long the
/// ledger keeps its rows.
///
/// A workflow that fails is logged, counted and stored, and the pass continues.
///
/// # Errors
/// Fails if the database fails; earlier transactions remain committed.
pub async fn decide_overdue_times(pool: &PgPool, kept: TimeDelta, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let mut done = Pass::default();
    let mut met = resume(pool, now, &mut done).await?;
    let mut failed = met.clone();
    // Batch by batch in the order of the key, so that each workflow is processed once, even if it is locked or its
    // due times cannot be computed. One that still has due times has a later key by then, and waits for the next
    // pass.
    let mut last = due::Key::before_all();
    loop {
        let batch = due::list_after(&mut *pool.acquire().await?, last, now - GRACE, &met, BATCH).await?;
        let Some(end) = batch.last() else { break };
        last = *end;
        let remaining = match due::settle_quiet(pool, &batch, now).await {
            Ok(remaining) => remaining,
            // One workflow makes the statement for all fail, so process each separately.
            Err(error) if job_failures::concerns_one_workflow(&error) => {
                batch.iter().map(due::Key::workflow_id).collect()
            }
            Err(error) => return Err(error),
        };
        done.workflows += (batch.len() - remaining.len()) as u64;
        for workflow in remaining {
            match account::process_workflow(pool, workflow, kept, now, &mut done).await {
                Ok(Account::Settled) => {}
                Ok(Account::Open) => met.push(workflow.0),
                Err(error) => {
                    job_failures::skip_failed(JOB, workflow.0, error)?;
                    done.failed += 1;
                    failed.push(workflow.0);
                }
            }
        }
    }
    job_failures::store_failed(&mut *pool.acquire().await?, JOB, &failed).await?;
    Ok(done)
}

/// Ends the pauses that are over, by locking each workflow. Returns the workflows that failed.
async fn resume(pool: &PgPool, now: DateTime<Utc>, done: &mut Pass) -> sqlx::Result<Vec<i64>> {
    let mut failed = Vec::new();
    // Return this connection before the next is acquired: a job that needs two connections may wait for itself.
    let over = due::list_ended_pauses(&mut *pool.acquire().await?, now).await?;
    for workflow in over {
        match resume_one(pool, WorkflowId(workflow), now).await {
            Ok(is_resumed) => done.resumed += u64::from(is_resumed),
            Err(error) => {
                job_failures::skip_failed(JOB, workflow, error)?;
                done.failed += 1;
                failed.push(workflow);
            }
        }
    }
    Ok(failed)
}

async fn resume_one(pool: &PgPool, workflow: WorkflowId, now: DateTime<Utc>) -> sqlx::Result<bool> {
    let mut tx = db::begin_transaction(pool).await?;
    let locked = try_lock_workflow(&mut tx, workflow, now).await?;
    tx.commit().await?;
    Ok(locked.is_some())
}
