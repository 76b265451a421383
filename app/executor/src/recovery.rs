//! Step 7 of 7: continues runs whose instance was lost, or abandons them with a reason. A job.
//!
//! A run is lost if it is `running` and its lease has expired, or was released by an instance whose attempt stopped or
//! panicked. The *same* run continues, under its id, on the instance that claims it. `attempt` then fences off the lost
//! attempt.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use db::{PgConnection, PgPool};
use ledger::admission::queue;
use ledger::job_failures;
use ledger::runs::abandon_runs;
use schedule::WorkflowId;
use uuid::Uuid;
use workflows::State;
use workflows::definition::policies::OnLost;
use workflows::reasons::{Reason, ReasonCode};

/// Name of the job in the table `jobs`.
pub const JOB: &str = "recovery";
/// How many runs one pass processes.
const BATCH: i64 = 100;

/// A run that no instance executes any more.
struct Lost {
    id: Uuid,
    workflow_id: i64,
    recoveries: i32,
    created_on: DateTime<Utc>,
    is_cancelled: bool,
    on_lost: OnLost,
    workflow_state: State,
}

/// The decision about it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    GoesOn,
    Cancelled,
    Abandoned(Reason),
}

/// When a lost run is abandoned instead of continued.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How often a lost run is continued before it is abandoned.
    pub max_attempts: u32,
    /// Lost runs that were accepted longer ago than these seconds are abandoned.
    pub max_age_secs: u32,
}

/// The result of one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Lost runs that it found.
    pub lost: usize,
    /// Lost runs that continue.
    pub go_on: usize,
    /// Lost runs that it cancelled, because their cancellation was requested.
    pub cancelled: usize,
    /// Lost runs that it abandoned.
    pub abandoned: usize,
    /// Workflows whose statements failed.
    pub failed: u64,
    /// The workflows of the runs that it ended.
    ended: BTreeSet<i64>,
}

/// Recovers the runs that lost instances have left `running`.
///
/// A workflow that fails is logged and counted, and the pass continues.
///
/// # Errors
/// Fails if the database fails; earlier transactions remain committed.
pub async fn recover_lost_runs(pool: &PgPool, settings: Settings, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let mut pass = match take_over(pool, None, settings, now).await {
        // One run makes the statement for all fail, so give each its own transaction.
        Err(error) if job_failures::concerns_one_workflow(&error) => take_over_singly(pool, settings, now).await?,
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

/// Recovers a batch of lost runs, or one of them, in one transaction.
async fn take_over(pool: &PgPool, only: Option<Uuid>, settings: Settings, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let mut tx = db::begin_transaction(pool).await?;
    let done = take_over_locked(&mut tx, only, settings, now).await;
    tx.commit_or_rollback(done).await
}

async fn take_over_locked(
    tx: &mut PgConnection,
    only: Option<Uuid>,
    settings: Settings,
    now: DateTime<Utc>,
) -> sqlx::Result<Pass> {
    let lost = lock_lost(tx, only, BATCH).await?;
    settle(tx, &lost, settings, now).await
}

/// Recovers lost runs one by one; failures are logged and counted.
async fn take_over_singly(pool: &PgPool, settings: Settings, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let mut done = Pass::default();
    let ids = lost_runs(&mut *pool.acquire().await?).await?;
    for (id, workflow_id) in ids {
        match take_over(pool, Some(id), settings, now).await {
            Ok(pass) => done.add(pass),
            Err(error) => {
                job_failures::skip_failed(JOB, workflow_id, error)?;
                done.failed += 1;
            }
        }
    }
    Ok(done)
}

async fn settle(tx: &mut PgConnection, lost: &[Lost], settings: Settings, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let (mut go_on, mut cancelled, mut abandoned, mut reasons) = (vec![], vec![], vec![], vec![]);
    let mut ended = BTreeSet::new();
    for run in lost {
        let verdict = run.verdict(settings, now);
        if verdict != Verdict::GoesOn {
            ended.insert(run.workflow_id);
        }
        match verdict {
            Verdict::GoesOn => go_on.push(run.id),
            Verdict::Cancelled => cancelled.push(run.id),
            Verdict::Abandoned(reason) => {
                tracing::error!(run_id = %run.id, %reason, "run {} abandoned: {}", run.id, reason.sentence());
                abandoned.push(run.id);
                reasons.push(reason.to_string());
            }
        }
    }
    let_go_on(tx, &go_on, now).await?;
    let_be_cancelled(tx, &cancelled, now).await?;
    abandon_runs(tx, &abandoned, &reasons, now).await?;
    Ok(Pass {
        lost: lost.len(),
        go_on: go_on.len(),
        cancelled: cancelled.len(),
        abandoned: abandoned.len(),
        failed: 0,
        ended,
    })
}

impl Lost {
    fn verdict(&self, settings: Settings, now: DateTime<Utc>) -> Verdict {
        let most = settings.max_attempts;
        let oldest = TimeDelta::seconds(settings.max_age_secs.into());
        if self.is_cancelled {
            Verdict::Cancelled
        } else if self.workflow_state == State::Archived {
            Verdict::Abandoned(ReasonCode::InstanceLostWorkflowArchived.into())
        } else if self.on_lost == OnLost::Abandon {
            Verdict::Abandoned(ReasonCode::InstanceLostOnLostAbandon.into())
        } else if i64::from(self.recoveries) >= i64::from(most) {
            Verdict::Abandoned(Reason::with_fact(ReasonCode::InstanceLostTooOften, most))
        } else if now - self.created_on > oldest {
            Verdict::Abandoned(Reason::with_fact(ReasonCode::InstanceLostTooOld, oldest.num_seconds()))
        } else {
            Verdict::GoesOn
        }
    }
}

impl Pass {
    fn add(&mut self, other: Self) {
        self.lost += other.lost;
        self.go_on += other.go_on;
        self.cancelled += other.cancelled;
        self.abandoned += other.abandoned;
        self.ended.extend(other.ended);
    }

    /// Whether the batch was full: there may be more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.lost >= usize::try_from(BATCH).unwrap_or(usize::MAX)
    }

    /// Returns what it did, in a sentence.
    #[must_use]
    pub fn in_words(&self) -> String {
        let Self { go_on, cancelled, abandoned, .. } = self;
        format!("lost runs: {go_on} continue, {abandoned} abandoned, {cancelled} cancelled")
    }
}

/// Lists lost runs with their workflows; more than one pass locks, because failing ones may come first.
async fn lost_runs(db: &mut PgConnection) -> sqlx::Result<Vec<(Uuid, i64)>> {
    let rows = sqlx::query!(
        r#"
        -- lost runs: this statement locks none; each is locked one by one later
        SELECT r.id, r.workflow_id
          FROM runs r JOIN workflows w ON w.id = r.workflow_id
         WHERE r.state = 'running' AND r.lease_until <= cronbox_now()
           AND (w.state <> 'paused' OR r.trigger NOT IN ('schedule', 'catch_up') OR r.cancel_requested_on IS NOT NULL)
         ORDER BY r.lease_until
         LIMIT $1
        "#,
        10 * BATCH,
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.workflow_id)).collect())
}

async fn lock_lost(tx: &mut PgConnection, only: Option<Uuid>, limit: i64) -> sqlx::Result<Vec<Lost>> {
    sqlx::query_as!(
        Lost,
        r#"
        -- lock lost runs: without those that a paused workflow holds, which would fill each pass
        SELECT r.id, r.workflow_id, r.recoveries, r.created_on, r.cancel_requested_on IS NOT NULL AS "is_cancelled!",
               w.on_lost AS "on_lost: OnLost", w.state AS "workflow_state: State"
          FROM runs r JOIN workflows w ON w.id = r.workflow_id
         WHERE r.state = 'running' AND r.lease_until <= cronbox_now()
           AND (w.state <> 'paused' OR r.trigger NOT IN ('schedule', 'catch_up') OR r.cancel_requested_on IS NOT NULL)
           AND ($2::uuid IS NULL OR r.id = $2)
         ORDER BY r.lease_until
         LIMIT $1
           FOR UPDATE OF r SKIP LOCKED
        "#,
        limit,
        only,
    )
    .fetch_all(tx)
    .await
}

async fn let_go_on(tx: &mut PgConnection, ids: &[Uuid], now: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- continue lost runs: this transaction has locked them, so no other has changed them
        WITH again AS (
            UPDATE runs_live
               SET state = 'accepted', recoveries = recoveries + 1, run_after = LEAST(run_after, $2),
                   locked_by = NULL, locked_at = NULL, lease_until = NULL
             WHERE id = ANY($1)
            RETURNING id, attempt, started_on
        )
        INSERT INTO run_attempts (run_id, attempt, started_on, ended_on, outcome)
        SELECT id, attempt, started_on, cronbox_now(), 'lost' FROM again
        "#,
        ids,
        now,
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn let_be_cancelled(tx: &mut PgConnection, ids: &[Uuid], now: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- end lost runs that are to be cancelled
        WITH cancelled AS (
            DELETE FROM runs_live r WHERE r.id = ANY($1) RETURNING r AS run
        )
        INSERT INTO runs_ended
        SELECT e.*
          FROM cancelled
         CROSS JOIN LATERAL ended_run(run, 'cancelled', $2, 'instance_lost_after_cancel:' || COALESCE((run).cancel_reason, 'cancelled_on_request')) AS e
        "#,
        ids,
        now,
    )
    .execute(tx)
    .await
    .map(drop)
}
