//! Step 7 of 7: executes accepted runs, so many at once, until it is told to stop.
//!
//! It polls, because a run must not depend on whoever accepted it; a wake-up only spares the wait.
//! A run that it has claimed and cannot finish at shutdown is given back for another instance.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use schedule::{Clock, Cron, WorkflowId};
use serde_json::json;
use sqlx::PgPool;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::actions::{self, Action, Call, Context, Outcome, http};
use crate::config::ACTION_TIMEOUT;
use crate::runs::{self, Claimed, Finished, Held, RunState, Trigger};

/// Tells the executor of this process that a run was accepted.
#[derive(Clone, Default)]
pub struct Wake(Arc<Notify>);

impl Wake {
    /// Makes the executor look now.
    pub fn poke(&self) {
        self.0.notify_one();
    }
}

/// Executes runs on this instance.
#[derive(Clone)]
pub struct Executor {
    /// The database.
    pub pool: PgPool,
    /// Business time.
    pub clock: Clock,
    /// Who holds the runs that this instance claims.
    pub instance: Uuid,
    /// For http actions.
    pub client: http::Client,
    /// Runs at once.
    pub slots: usize,
    /// How often to look without being told.
    pub poll: Duration,
    /// How long running actions may take to end at shutdown.
    pub drain: Duration,
    /// Told when a run was accepted here.
    pub wake: Wake,
}

impl Executor {
    /// Executes runs until `shutdown`, then lets the running ones end or gives them back.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut running = JoinSet::new();
        tokio::pin!(shutdown);
        loop {
            let started = self.start_due(&mut running).await;
            // A full claim may have left more behind; otherwise wait for a slot, a word or the poll.
            if started > 0 && running.len() < self.slots {
                continue;
            }
            tokio::select! {
                () = &mut shutdown => break,
                Some(_) = running.join_next() => {}
                () = self.wake.0.notified(), if running.len() < self.slots => {}
                () = tokio::time::sleep(self.poll), if running.len() < self.slots => {}
            }
            while running.try_join_next().is_some() {}
        }
        self.drain(running).await;
    }

    async fn start_due(&self, running: &mut JoinSet<()>) -> usize {
        let free = self.slots.saturating_sub(running.len());
        if free == 0 {
            return 0;
        }
        let claimed = match self.claim(free).await {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::warn!(%error, "cannot claim runs; the next poll tries again");
                return 0;
            }
        };
        let started = claimed.len();
        for run in claimed {
            running.spawn(self.clone().execute(run));
        }
        started
    }

    async fn claim(&self, free: usize) -> sqlx::Result<Vec<Claimed>> {
        let mut connection = self.pool.acquire().await?;
        runs::claim(&mut connection, self.instance, i64::try_from(free).unwrap_or(i64::MAX), self.clock.now()).await
    }

    async fn execute(self, run: Claimed) {
        let now = self.clock.now();
        tracing::info!(
            step = 7,
            workflow_id = run.workflow_id,
            run_id = %run.id,
            "run: {} of workflow {} starts (attempt {})",
            run.id,
            run.workflow_id,
            run.attempt,
        );
        let outcome = match Action::parse(&run.action) {
            Ok(action) => perform(&action, &call(&run, now), &self.client).await,
            Err(error) => Outcome::Failed { error: error.detail, result: None },
        };
        self.finish(&run, &outcome).await;
    }

    /// Writes the end down, however long the database is away: the action has happened.
    async fn finish(&self, run: &Claimed, outcome: &Outcome) {
        let finished = match outcome {
            Outcome::Succeeded(result) => Finished { state: RunState::Succeeded, result: Some(result), error: None },
            Outcome::Failed { error, result } => {
                Finished { state: RunState::Failed, result: result.as_ref(), error: Some(error) }
            }
        };
        let mut pause = Duration::from_millis(100);
        loop {
            match self.try_finish(run, &finished).await {
                Ok(Held::Ours) => return announce(run, &finished),
                Ok(Held::Lost) => {
                    tracing::warn!(run_id = %run.id, "run was taken away before it could be finished");
                    return;
                }
                Err(error) => {
                    tracing::warn!(run_id = %run.id, %error, "cannot write the end of a run; trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(5));
                }
            }
        }
    }

    async fn try_finish(&self, run: &Claimed, finished: &Finished<'_>) -> sqlx::Result<Held> {
        let mut connection = self.pool.acquire().await?;
        runs::finish(&mut connection, self.instance, run, finished, self.clock.now()).await
    }

    async fn drain(&self, mut running: JoinSet<()>) {
        let all_ended = async { while running.join_next().await.is_some() {} };
        if tokio::time::timeout(self.drain, all_ended).await.is_ok() {
            return;
        }
        tracing::warn!(runs = running.len(), "runs still going at shutdown are given back; they start again elsewhere");
        running.shutdown().await;
        if let Err(error) = self.release_all().await {
            tracing::warn!(%error, "cannot give runs back; their lease will end");
        }
    }

    async fn release_all(&self) -> sqlx::Result<()> {
        let mut connection = self.pool.acquire().await?;
        runs::release_all(&mut connection, self.instance).await
    }
}

async fn perform(action: &Action, call: &Call, client: &http::Client) -> Outcome {
    match tokio::time::timeout(ACTION_TIMEOUT, actions::perform(action, call, client)).await {
        Ok(outcome) => outcome,
        Err(_) => Outcome::Failed { error: format!("no answer within {} s", ACTION_TIMEOUT.as_secs()), result: None },
    }
}

fn announce(run: &Claimed, finished: &Finished<'_>) {
    let verdict = match finished.error {
        None => "succeeded".to_owned(),
        Some(error) => format!("failed: {error}"),
    };
    tracing::info!(
        step = 7,
        workflow_id = run.workflow_id,
        run_id = %run.id,
        "run: {} of workflow {} {verdict}",
        run.id,
        run.workflow_id,
    );
}

fn call(run: &Claimed, now: DateTime<Utc>) -> Call {
    Call {
        run_id: run.id,
        workflow_id: WorkflowId(run.workflow_id),
        trigger: run.trigger.as_str().to_owned(),
        scheduled_time: run.scheduled_time,
        attempt: run.attempt,
        inputs: json!(run.starting_inputs.0),
        context: Context {
            is_catch_up: run.trigger == Trigger::CatchUp,
            is_recovery: run.attempt > 1,
            lateness_s: run.scheduled_time.map_or(0, |time| (now - time).num_seconds()),
            original_scheduled_time: run.scheduled_time,
            recovery_attempt_time: (run.attempt > 1).then_some(now),
            last_scheduled_time: run.last_scheduled_time,
            next_scheduled_times: next_times(run, now),
        },
    }
}

fn next_times(run: &Claimed, now: DateTime<Utc>) -> Vec<DateTime<Utc>> {
    let timezone = schedule::parse_timezone(run.timezone.as_deref().unwrap_or("UTC"));
    let cron = run.cron_schedule.as_deref().map(Cron::parse);
    match (cron, timezone) {
        (Some(Ok(cron)), Ok(timezone)) => {
            std::iter::successors(cron.next_after(now, timezone), |last| cron.next_after(*last, timezone))
                .take(5)
                .collect()
        }
        _ => Vec::new(),
    }
}
