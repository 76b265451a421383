//! Step 7 of 7: decides every due time for which no fire arrived.
//!
//! EventBridge, the runner or this app may have been unavailable for a minute or a week; the watchdog depends on none
//! of them. It enumerates the due times by the schedule versions.
//!
//! Instances share the work by shards (`shard.rs`). In a shard most workflows have no undecided time: one watermark says
//! for all of them up to when they are decided, and a pass finds the exceptions by their timings (`followers.rs`). A
//! workflow that was edited lately, that is behind, or whose times cannot be computed, is checked on its own. Times are
//! decided in batches of workflows (`batch.rs`), under their locks, and what a batch leaves over one by one
//! (`account.rs`).

mod account;
mod batch;
mod due;
mod followers;
mod member;
mod report;
mod shard;
mod verdicts;
mod write;

use std::time::{Duration, Instant};

use account::Account;
use batch::Decided;
use chrono::{DateTime, TimeDelta, Utc};
use db::PgPool;
use followers::DueColumns;
use member::Instants;
use schedule::WorkflowId;
use shard::{Kept, Shard};
use workflows::try_lock_workflow;

use crate::followers::list_followed;
use crate::job_failures;

pub use report::Pass;

/// Name of the job in the table `jobs`.
pub const JOB: &str = "watchdog";
/// The jobs that do the same: as many instances can share the shards. Each processes the shards that no other has leased.
pub const JOBS: [&str; 4] = [JOB, "watchdog_2", "watchdog_3", "watchdog_4"];
/// After this time a pass leases no further shard: a turn of a job must end within its limit.
const PASS: Duration = Duration::from_secs(120);
/// How many workflows one transaction decides.
const BATCH: i64 = 200;

/// Decides all times that were due up to the grace ago, whatever the state of their workflow, of each shard that no
/// other pass has leased. `kept` is how long the ledger keeps its rows.
///
/// A workflow that fails is logged, counted and stored, and the pass continues.
///
/// # Errors
/// Fails if the database fails; earlier transactions remain committed.
pub async fn decide_overdue_times(pool: &PgPool, kept: TimeDelta, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let mut turn =
        Turn { pool, instants: Instants { now, kept }, done: Pass::default(), met: Vec::new(), failed: Vec::new() };
    turn.resume().await?;
    let (began, mut processed) = (Instant::now(), Vec::new());
    loop {
        if began.elapsed() > PASS {
            turn.done.may_be_more = true;
            break;
        }
        let until = turn.instants.until();
        let leased = shard::lease_next(&mut *pool.acquire().await?, &processed, until).await?;
        let Some(mut shard) = leased else { break };
        processed.push(shard.id);
        let outcome = turn.process_shard(&mut shard).await?;
        shard::release_shard(&mut *pool.acquire().await?, &shard).await?;
        if outcome == Kept::Lost {
            tracing::warn!(shard = shard.id, "lease of a watchdog shard lost; another pass continues with it");
        }
    }
    job_failures::store_failed(&mut *pool.acquire().await?, JOB, &processed, &turn.failed).await?;
    Ok(turn.done)
}

/// A pass, and what it has done.
struct Turn<'a> {
    pool: &'a PgPool,
    instants: Instants,
    done: Pass,
    /// Workflows that wait for the next pass: those that failed, and those with very many times.
    met: Vec<i64>,
    failed: Vec<i64>,
}

impl Turn<'_> {
    /// Ends the pauses that are over, by locking each workflow.
    async fn resume(&mut self) -> sqlx::Result<()> {
        // Return this connection before the next is acquired: a job that needs two connections may wait for itself.
        let over = due::list_ended_pauses(&mut *self.pool.acquire().await?, self.instants.now).await?;
        for workflow in over {
            match resume_one(self.pool, WorkflowId(workflow), self.instants.now).await {
                Ok(is_resumed) => self.done.resumed += u64::from(is_resumed),
                Err(error) => self.skip_failed(workflow, error)?,
            }
        }
        Ok(())
    }

    async fn process_shard(&mut self, shard: &mut Shard) -> sqlx::Result<Kept> {
        match self.decide_followers(shard).await? {
            Kept::Ours => self.decide_watched(shard).await,
            Kept::Lost => Ok(Kept::Lost),
        }
    }

    /// Decides the times of the workflows that follow the shard, and moves its watermark, stretch by stretch.
    async fn decide_followers(&mut self, shard: &mut Shard) -> sqlx::Result<Kept> {
        let until = self.instants.until();
        let from = shard.decided_through.max(self.instants.oldest());
        let followed = list_followed(&mut *self.pool.acquire().await?, Some(shard.id)).await?;
        let mut after = from;
        while after < until {
            let end = if followed.is_empty() { until } else { followers::stretch_end(after, from, until) };
            let mut due = DueColumns::default();
            let mut remaining = Vec::new();
            for timing in &followed {
                if !due.add_times(timing, after, end) {
                    let connection = &mut *self.pool.acquire().await?;
                    remaining.extend(followers::find_of_timing(connection, shard, timing).await?);
                }
            }
            let undecided = followers::find_undecided(&mut *self.pool.acquire().await?, shard, &due).await?;
            match self.decide(shard, &undecided).await? {
                Some(left) => remaining.extend(left),
                None => return Ok(Kept::Lost),
            }
            if self.still_follow(shard, &remaining, after).await? {
                // Their rows are locked at this moment. The next pass begins here again.
                return Ok(Kept::Ours);
            }
            if shard::move_watermark(&mut *self.pool.acquire().await?, shard, end).await? == Kept::Lost {
                return Ok(Kept::Lost);
            }
            after = end;
        }
        Ok(Kept::Ours)
    }

    /// Makes the workflows that remain undecided be checked on their own; returns whether some still follow the shard.
    async fn still_follow(&self, shard: &Shard, remaining: &[i64], through: DateTime<Utc>) -> sqlx::Result<bool> {
        if remaining.is_empty() {
            return Ok(false);
        }
        let connection = &mut *self.pool.acquire().await?;
        Ok(followers::cease_to_follow(connection, shard, remaining, through).await? > 0)
    }

    /// Decides the times of the workflows that are checked on their own.
    ///
    /// Batch by batch in the order of the key, so that each is processed once, even if it is locked or its due times
    /// cannot be computed. One that still has due times has a later key by then, and waits for the next pass.
    async fn decide_watched(&mut self, shard: &Shard) -> sqlx::Result<Kept> {
        let mut last = due::Key::before_all();
        loop {
            let until = self.instants.until();
            let listed =
                due::list_after(&mut *self.pool.acquire().await?, shard.id, last, until, &self.met, BATCH).await;
            let batch = listed?;
            let Some(end) = batch.last() else { return Ok(Kept::Ours) };
            last = *end;
            let ids: Vec<_> = batch.iter().map(|key| key.id).collect();
            if self.decide(shard, &ids).await?.is_none() {
                return Ok(Kept::Lost);
            }
            if ids.len() < usize::try_from(BATCH).unwrap_or(usize::MAX) {
                return Ok(Kept::Ours);
            }
        }
    }

    /// Decides the times of these workflows. Returns those that the batches left over, although each of them was then
    /// processed on its own; `None` if the lease is lost.
    async fn decide(&mut self, shard: &Shard, workflows: &[i64]) -> sqlx::Result<Option<Vec<i64>>> {
        let mut left = Vec::new();
        for batch in workflows.chunks(usize::try_from(BATCH).unwrap_or(1)) {
            let remaining = match batch::decide_batch(self.pool, shard, batch, self.instants).await {
                Ok(Some(Decided { remaining, pass })) => {
                    self.done.add(pass);
                    remaining
                }
                Ok(None) => return Ok(None),
                // One workflow makes the statements for all fail, so process each separately.
                Err(error) if job_failures::concerns_one_workflow(&error) => {
                    batch.iter().map(|id| WorkflowId(*id)).collect()
                }
                Err(error) => return Err(error),
            };
            for workflow in remaining {
                self.decide_singly(workflow).await?;
                left.push(workflow.0);
            }
        }
        Ok(Some(left))
    }

    async fn decide_singly(&mut self, workflow: WorkflowId) -> sqlx::Result<()> {
        let Instants { now, kept } = self.instants;
        match account::process_workflow(self.pool, workflow, kept, now, &mut self.done).await {
            Ok(Account::Settled) => Ok(()),
            Ok(Account::Open) => {
                self.met.push(workflow.0);
                Ok(())
            }
            Err(error) => self.skip_failed(workflow.0, error),
        }
    }

    fn skip_failed(&mut self, workflow: i64, error: sqlx::Error) -> sqlx::Result<()> {
        job_failures::skip_failed(JOB, workflow, error)?;
        self.done.failed += 1;
        self.met.push(workflow);
        self.failed.push(workflow);
        Ok(())
    }
}

async fn resume_one(pool: &PgPool, workflow: WorkflowId, now: DateTime<Utc>) -> sqlx::Result<bool> {
    let mut tx = db::begin_transaction(pool).await?;
    let locked = try_lock_workflow(&mut tx, workflow, now).await?;
    tx.commit().await?;
    Ok(locked.is_some())
}
