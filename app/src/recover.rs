//! Step 7 of 7: continues runs whose instance was lost, or abandons them with a reason. A job.
//!
//! A run is lost if it is `running` and its lease has expired, or was released by an instance whose attempt stopped or
//! panicked. The *same* run continues, under its id, on the instance that claims it. `attempt` then fences off the lost
//! attempt.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use uuid::Uuid;

use crate::App;
use crate::clock;
use crate::config::Config;
use crate::jobs::{self, Did};
use crate::policies::OnLost;
use crate::queue;
use crate::runs;
use crate::workflows::State;

/// Name of the job in the table `jobs`.
const JOB: &str = "recovery";
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
    Abandoned(String),
}

/// The result of one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pass {
    go_on: usize,
    cancelled: usize,
    abandoned: usize,
    /// The workflows of the runs that it ended.
    ended: BTreeSet<i64>,
}

/// Recovers the runs that lost instances have left `running`.
///
/// # Errors
/// Fails if the database fails; then nothing is changed.
pub async fn recover(app: &App) -> anyhow::Result<Did> {
    let now = clock::database_time(app).await?;
    let mut failed = 0;
    let (lost, pass) = match take_over(app, None, now).await {
        // One run makes the statement for all fail, so give each its own transaction.
        Err(error) if jobs::concerns_one_workflow(&error) => take_over_singly(app, now, &mut failed).await?,
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
    Ok(match lost {
        0 => Did::Nothing,
        // A full batch: there may be more.
        n if n >= usize::try_from(BATCH).unwrap_or(usize::MAX) => Did::Some(pass.in_words()),
        _ => Did::All(pass.in_words()),
    })
}

/// Recovers a batch of lost runs, or one of them, in one transaction; returns how many.
async fn take_over(app: &App, only: Option<Uuid>, now: DateTime<Utc>) -> sqlx::Result<(usize, Pass)> {
    let mut tx = db::begin(&app.pool).await?;
    let done = take_over_locked(&mut tx, only, &app.config, now).await;
    tx.finish(done).await
}

async fn take_over_locked(
    tx: &mut PgConnection,
    only: Option<Uuid>,
    config: &Config,
    now: DateTime<Utc>,
) -> sqlx::Result<(usize, Pass)> {
    let lost = lock_lost(tx, only, BATCH).await?;
    let pass = settle(tx, &lost, config, now).await?;
    Ok((lost.len(), pass))
}

/// Recovers lost runs one by one; failures are logged and counted.
async fn take_over_singly(app: &App, now: DateTime<Utc>, failed: &mut u64) -> sqlx::Result<(usize, Pass)> {
    let (mut lost, mut done) = (0, Pass::default());
    let ids = lost_runs(&mut *app.pool.acquire().await?).await?;
    for (id, workflow_id) in ids {
        match take_over(app, Some(id), now).await {
            Ok((runs, pass)) => {
                lost += runs;
                done.add(pass);
            }
            Err(error) => {
                jobs::skip_failed(JOB, workflow_id, error)?;
                *failed += 1;
            }
        }
    }
    Ok((lost, done))
}

async fn settle(tx: &mut PgConnection, lost: &[Lost], config: &Config, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let (mut go_on, mut cancelled, mut abandoned, mut reasons) = (vec![], vec![], vec![], vec![]);
    let mut ended = BTreeSet::new();
    for run in lost {
        let verdict = run.verdict(config, now);
        if verdict != Verdict::GoesOn {
            ended.insert(run.workflow_id);
        }
        match verdict {
            Verdict::GoesOn => go_on.push(run.id),
            Verdict::Cancelled => cancelled.push(run.id),
            Verdict::Abandoned(reason) => {
                tracing::error!(run_id = %run.id, reason, "run {} is abandoned: {reason}", run.id);
                abandoned.push(run.id);
                reasons.push(reason);
            }
        }
    }
    let pass = Pass { go_on: go_on.len(), cancelled: cancelled.len(), abandoned: abandoned.len(), ended };
    let_go_on(tx, &go_on, now).await?;
    let_be_cancelled(tx, &cancelled, now).await?;
    runs::abandon(tx, &abandoned, &reasons, now).await?;
    Ok(pass)
}

impl Lost {
    fn verdict(&self, config: &Config, now: DateTime<Utc>) -> Verdict {
        let most = config.recovery_max_attempts;
        let oldest = TimeDelta::seconds(config.recovery_max_age_secs.into());
        if self.is_cancelled {
            Verdict::Cancelled
        } else if self.workflow_state == State::Archived {
            Verdict::Abandoned("its instance was lost, and its workflow is archived".to_owned())
        } else if self.on_lost == OnLost::Abandon {
            Verdict::Abandoned("its instance was lost, and on_lost is abandon".to_owned())
        } else if i64::from(self.recoveries) >= i64::from(most) {
            Verdict::Abandoned(format!("its instance was lost, and it had gone on {most} times already"))
        } else if now - self.created_on > oldest {
            Verdict::Abandoned(format!(
                "its instance was lost, and it was accepted more than {} s ago",
                oldest.num_seconds()
            ))
        } else {
            Verdict::GoesOn
        }
    }
}

impl Pass {
    fn add(&mut self, other: Self) {
        self.go_on += other.go_on;
        self.cancelled += other.cancelled;
        self.abandoned += other.abandoned;
        self.ended.extend(other.ended);
    }

    fn in_words(&self) -> String {
        let Pass { go_on, cancelled, abandoned, .. } = self;
        format!("of lost runs {go_on} go on, {abandoned} are abandoned, {cancelled} cancelled")
    }
}

/// Lists lost runs with their workflows; more than one pass locks, because failing ones may come first.
async fn lost_runs(db: &mut PgConnection) -> sqlx::Result<Vec<(Uuid, i64)>> {
    let rows = sqlx::query!(
        r#"
        -- lost runs: locked one by one later
        SELECT id, workflow_id
          FROM runs
         WHERE state = 'running' AND lease_until <= cronbox_now()
         ORDER BY lease_until
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
        -- lock lost runs: those of a paused workflow wait, and are left out here, or they would fill each pass
        SELECT r.id, r.workflow_id, r.recoveries, r.created_on, r.cancel_requested_on IS NOT NULL AS "is_cancelled!",
               w.on_lost AS "on_lost: OnLost", w.state AS "workflow_state: State"
          FROM runs r JOIN workflows w ON w.id = r.workflow_id
         WHERE r.state = 'running' AND r.lease_until <= cronbox_now()
           AND (w.state <> 'paused' OR r.cancel_requested_on IS NOT NULL)
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
        -- let lost runs go on: locked by this transaction, so nothing else has changed them
        UPDATE runs
           SET state = 'accepted', recoveries = recoveries + 1, run_after = LEAST(run_after, $2),
               locked_by = NULL, locked_at = NULL, lease_until = NULL
         WHERE id = ANY($1)
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
        UPDATE runs
           SET state = 'cancelled', error = COALESCE(cancel_reason, 'cancelled on request') || '; its instance was lost',
               finished_on = $2, locked_by = NULL, locked_at = NULL, lease_until = NULL
         WHERE id = ANY($1)
        "#,
        ids,
        now,
    )
    .execute(tx)
    .await
    .map(drop)
}
