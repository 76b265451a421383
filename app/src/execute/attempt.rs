//! Step 7 of 7: one attempt of a run, from the claim to what is written down about it.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use schedule::WorkflowId;
use serde_json::{Value, json};

use super::heartbeat::Stop;
use super::{Executor, call};
use crate::actions::{self, Action, Again, Outcome, Sender};
use crate::failures;
use crate::inject::{self, Point};
use crate::policies::Overlap;
use crate::queue;
use crate::runs::{self, Claimed, Finished, Held, RunState};

/// The pause after the first answer that failed; it doubles.
const BACKOFF_BASE_SECS: u32 = 10;
/// The longest.
const BACKOFF_MAX_SECS: u32 = 60 * 60;

/// How an attempt ended.
enum Ending {
    /// Its action did what it should.
    Succeeded(Value),
    /// It did not.
    Failed { error: String, result: Option<Value>, again: Again },
    /// It took longer than the workflow allows.
    TimedOut,
    /// Somebody asked for it.
    Cancelled,
    /// The run is not ours any more: nothing is to be written.
    Lost,
}

/// What is to be written down about it.
struct Verdict {
    state: RunState,
    /// When the next attempt may start, if there is to be one.
    again_at: Option<DateTime<Utc>>,
    failed_tries: i32,
    result: Option<Value>,
    error: Option<String>,
}

impl Executor {
    pub(super) async fn attempt(self, run: Claimed) {
        tracing::info!(
            step = 7,
            workflow_id = run.workflow_id,
            run_id = %run.id,
            "run: {} of workflow {} starts (attempt {})",
            run.id,
            run.workflow_id,
            run.attempt,
        );
        let ending = self.perform(&run).await;
        inject::at(Point::I5);
        let Some(verdict) = verdict(&run, ending, self.app.clock.now()) else {
            tracing::warn!(run_id = %run.id, "run was taken away; its work was stopped");
            return;
        };
        self.write_down(&run, &verdict).await;
    }

    async fn perform(&self, run: &Claimed) -> Ending {
        let (_registered, stopped) = self.own.register(run.id, run.attempt);
        let action = match Action::parse(&run.action) {
            Ok(action) => action,
            Err(error) => return Ending::Failed { error: error.detail, result: None, again: Again::Never },
        };
        let now = self.app.clock.now();
        let (call, sender) = (call::of(run, now), Sender { client: &self.client, secret: &run.signing_secret, now });
        let timeout = Duration::from_secs(u64::try_from(run.timeout_secs).unwrap_or_default());
        tokio::select! {
            // What is done is done, even if it was to be stopped at the same moment.
            biased;
            done = tokio::time::timeout(timeout, actions::perform(&action, &call, &sender)) => {
                match done {
                    Ok(Outcome::Succeeded(result)) => Ending::Succeeded(result),
                    Ok(Outcome::Failed { error, result, again }) => Ending::Failed { error, result, again },
                    Err(_) => Ending::TimedOut,
                }
            }
            Ok(stop) = stopped => match stop {
                Stop::Cancelled => Ending::Cancelled,
                Stop::Lost => Ending::Lost,
            },
        }
    }

    /// Writes the end down, however long the database is away: the action has happened.
    async fn write_down(&self, run: &Claimed, verdict: &Verdict) {
        let mut pause = Duration::from_millis(100);
        loop {
            match self.try_write_down(run, verdict).await {
                Ok(Held::Ours) => return self.ended(run, verdict).await,
                Ok(Held::Lost) => {
                    tracing::warn!(run_id = %run.id, "run was taken away before it could be finished; kept as a late result");
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

    async fn try_write_down(&self, run: &Claimed, verdict: &Verdict) -> sqlx::Result<Held> {
        let (instance, now) = (self.app.instance, self.app.clock.now());
        let mut connection = self.app.pool.acquire().await?;
        let error = verdict.error.as_deref();
        if let Some(run_after) = verdict.again_at {
            match runs::try_again(&mut connection, instance, run, error, run_after).await? {
                Held::Ours => return Ok(Held::Ours),
                // Cancelled meanwhile, if it is still ours at all.
                Held::Lost => {}
            }
        }
        let state = if verdict.again_at.is_some() { RunState::Cancelled } else { verdict.state };
        let finished = Finished { state, result: verdict.result.as_ref(), error, failed_tries: verdict.failed_tries };
        match runs::finish(&mut connection, instance, run, &finished, now).await? {
            Held::Ours => Ok(Held::Ours),
            Held::Lost => runs::keep_late(&mut connection, run, verdict.state, &late(run, verdict, now)).await,
        }
    }

    async fn ended(&self, run: &Claimed, verdict: &Verdict) {
        inject::at(Point::I6);
        announce(run, verdict);
        if verdict.again_at.is_some() {
            return;
        }
        if matches!(verdict.state, RunState::Failed | RunState::TimedOut) {
            failures::pause_after(&self.app, run).await;
        }
        if let Err(error) = self.hand_on(run).await {
            tracing::warn!(run_id = %run.id, %error, "cannot hand a slot on; the job `queue` will");
        }
    }

    /// Gives the slot to who waits for it.
    async fn hand_on(&self, run: &Claimed) -> sqlx::Result<()> {
        // Under such a policy somebody may be queueing at this moment: only the workflow's lock knows.
        let may_wait = matches!(run.overlap_policy, Overlap::Queue | Overlap::QueueOne | Overlap::Replace);
        if may_wait || runs::any_queued(&mut *self.app.pool.acquire().await?, run.workflow_id).await? {
            let advanced = queue::advance(&self.app.pool, WorkflowId(run.workflow_id), self.app.clock.now()).await?;
            if advanced.promoted > 0 {
                self.app.wake.poke();
            }
        }
        Ok(())
    }
}

/// None: there is nothing of ours to write.
fn verdict(run: &Claimed, ending: Ending, now: DateTime<Utc>) -> Option<Verdict> {
    let plain = |state| Verdict { state, again_at: None, failed_tries: 0, result: None, error: None };
    Some(match ending {
        Ending::Lost => return None,
        Ending::Succeeded(result) => Verdict { result: Some(result), ..plain(RunState::Succeeded) },
        Ending::Cancelled => Verdict { error: Some("cancelled on request".to_owned()), ..plain(RunState::Cancelled) },
        Ending::TimedOut => {
            let error = Some(format!("no answer within {} s", run.timeout_secs));
            Verdict { again_at: again_at(run, None, now), failed_tries: 1, error, ..plain(RunState::TimedOut) }
        }
        Ending::Failed { error, result, again } => {
            let again_at = match again {
                Again::Never => None,
                Again::Later(at_least) => again_at(run, at_least, now),
            };
            Verdict { again_at, failed_tries: 1, result, error: Some(error), ..plain(RunState::Failed) }
        }
    })
}

/// When the next try may start; none if this was the last.
fn again_at(run: &Claimed, at_least: Option<Duration>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let failed = run.tries + 1;
    if failed >= run.max_attempts {
        return None;
    }
    let doublings = u32::try_from(failed - 1).unwrap_or_default().min(16);
    let most = (f64::from(BACKOFF_BASE_SECS) * f64::from(1_u32 << doublings)).min(f64::from(BACKOFF_MAX_SECS));
    // Half of it by chance, so that those who failed together do not come back together.
    let pause = Duration::from_secs_f64(most / 2.0 * (1.0 + rand::random::<f64>()));
    let pause = pause.max(at_least.unwrap_or_default().min(Duration::from_secs(BACKOFF_MAX_SECS.into())));
    TimeDelta::from_std(pause).ok().map(|pause| now + pause)
}

fn late(run: &Claimed, verdict: &Verdict, now: DateTime<Utc>) -> Value {
    json!({
        "attempt": run.attempt,
        "state": verdict.state,
        "result": verdict.result,
        "error": verdict.error,
        "finished_on": now,
    })
}

fn announce(run: &Claimed, verdict: &Verdict) {
    let how = match (&verdict.error, verdict.again_at) {
        (None, _) => "succeeded".to_owned(),
        (Some(error), None) => format!("{}: {error}", verdict.state.in_words()),
        (Some(error), Some(at)) => {
            format!("failed, is tried again after {}: {error}", at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))
        }
    };
    tracing::info!(
        step = 7,
        workflow_id = run.workflow_id,
        run_id = %run.id,
        "run: {} of workflow {} {how}",
        run.id,
        run.workflow_id,
    );
}
