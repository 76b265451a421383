//! Step 7 of 7: one attempt of a run, from the claim to its recorded outcome.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use db::failpoint::pass_point;
use egress::allowed::Tenant;
use futures::FutureExt as _;
use ledger::admission::queue;
use ledger::backfills::refill_backfill;
use ledger::runs::RunState;
use schedule::WorkflowId;
use serde_json::{Value, json};
use tokio::sync::oneshot::error::TryRecvError;
use traces::{Kind, Parent, Span};
use uuid::Uuid;
use workflows::definition::action::Action;
use workflows::definition::policies::Overlap;
use workflows::definition::redaction::origin_of_action;
use workflows::failpoint::Point;
use workflows::reasons::{Reason, ReasonCode};
use workflows::secrets::SecretError;
use workflows::signing::SigningSecret;

use super::Executor;
use super::attempts_in_flight::{Registered, Stop};
use crate::actions::{Again, Outcome, Sender, perform_action};
use crate::activity::ActionOutcome;
use crate::auto_pause;
use crate::call::build_call;
use crate::claim::{self, Claimed, Finished, Ownership};
use crate::ends::Ended;
use crate::hand_over::{self, Sent};
use crate::next_try::next_try;

/// The pause before a failed statement is repeated for the first time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// For the owner of the workflow.
const NOT_DECRYPTED: &str = "a secret of the action cannot be decrypted: it was moved or changed, or its key is missing; the log of the app says which";

/// For the owner of the workflow.
const INPUTS_OF_OTHER_ORIGIN: &str =
    "the run has secret inputs that were sent for another origin than the URL has now: fire the workflow with them";

/// How an attempt ended.
enum Ending {
    /// Its action succeeded.
    Succeeded(Value),
    /// Its action failed.
    Failed { error: String, result: Option<Value>, again: Again },
    /// The attempt took longer than the workflow's timeout.
    TimedOut,
    /// A caller requested the cancellation of its run.
    Cancelled,
}

impl From<Outcome> for Ending {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Succeeded(result) => Self::Succeeded(result),
            Outcome::Failed { error, result, again } => Self::Failed { error, result, again },
        }
    }
}

/// Why an attempt stopped without an outcome.
enum Cut {
    /// The run no longer belongs to this attempt, or may soon belong to another: write nothing.
    Lost,
    /// This instance shuts down before the attempt ends.
    HandedOver,
}

/// The result of an attempt in the database.
enum Left {
    /// The outcome of the attempt is written.
    Written(Verdict),
    /// Another attempt has taken the run, or the run has ended.
    Taken,
    /// The attempt stopped without an outcome, so its run may still be `running`.
    Stopped,
}

/// The outcome to write.
struct Verdict {
    state: RunState,
    /// When the next attempt may start; `None` if there is none.
    again_at: Option<DateTime<Utc>>,
    failed_tries: i32,
    result: Option<Value>,
    error: Option<String>,
    /// Whether it is known that no run of the workflow waited for the slot when the outcome was written.
    has_no_queue: bool,
}

impl Executor {
    pub(super) async fn execute_attempt(self, run: Claimed, mut registered: Registered) {
        tracing::info!(
            step = 7,
            workflow_id = run.workflow_id,
            run_id = %run.id,
            "run: {} of workflow {} starts (attempt {})",
            run.id,
            run.workflow_id,
            run.attempt,
        );
        match AssertUnwindSafe(self.carry_out(&run, &mut registered)).catch_unwind().await {
            Ok(Left::Written(verdict)) => {
                drop(registered);
                self.ended(&run, &verdict).await;
            }
            // A claim leaves a run out whose attempt this process has not ended, so it may wait for this end.
            Ok(Left::Taken) => {
                drop(registered);
                self.parts.wake.notify();
            }
            Ok(Left::Stopped) => {
                tracing::warn!(run_id = %run.id, "run lost; its attempt was stopped");
                registered.into_stopped();
                self.release_stopped().await;
                self.parts.wake.notify();
            }
            Err(_) => {
                tracing::error!(run_id = %run.id, "attempt panicked; recovery continues or abandons its run");
                registered.into_stopped();
                self.release_stopped().await;
                self.parts.wake.notify();
            }
        }
    }

    async fn carry_out(&self, run: &Claimed, registered: &mut Registered) -> Left {
        let began = Instant::now();
        let span = begin_span(run);
        let ending = self.perform(run, registered, &span).await;
        let kind = run.action.read().ok().and_then(|action| action.get("type")).and_then(Value::as_str);
        let outcome = outcome_of(&ending);
        end_span(span, outcome);
        self.parts.activity.count_action(kind, outcome, began.elapsed());
        pass_point(Point::I5);
        #[cfg(debug_assertions)]
        self.after_action.iter().for_each(|call| call());
        match ending {
            Err(Cut::Lost) => Left::Stopped,
            Err(Cut::HandedOver) => {
                let sent = if registered.departure.has_left() { Sent::Perhaps } else { Sent::Nothing };
                self.hand_over(run, sent).await
            }
            Ok(ending) => self.write_down(run, verdict(run, ending, self.parts.clock.now())).await,
        }
    }

    async fn perform(&self, run: &Claimed, registered: &mut Registered, span: &Span) -> Result<Ending, Cut> {
        let now = self.parts.clock.now();
        let Registered { departure, stopped, .. } = registered;
        // While it waited for the loop, its lease may have ended, so it must not begin.
        match stopped.try_recv() {
            Err(TryRecvError::Empty) => {}
            stop => return after_stop(stop.ok()),
        }
        let tenant = Tenant { team_id: Some(run.team_id), hosts: &run.allowed_hosts };
        let failed = |error: String| Ok(Ending::Failed { error, result: None, again: Again::Never });
        let (action, inputs) = match (run.action.read(), run.inputs.read()) {
            (Ok(action), Ok(inputs)) => (action, inputs),
            (Err(error), _) => return failed(format!("the action cannot be read: {error}")),
            (_, Err(error)) => return failed(format!("the inputs cannot be read: {error}")),
        };
        let Ok(call) = build_call(run, action, inputs, now) else {
            return failed(INPUTS_OF_OTHER_ORIGIN.to_owned());
        };
        let timeout = Duration::from_secs(u64::try_from(run.timeout_secs).unwrap_or_default());
        let performed = async {
            let (action, signing) = match self.open_secrets(run, action, now).await {
                Ok(opened) => opened,
                Err(failed) => return Ending::from(failed),
            };
            let (client, may_use_http) = (&self.client, run.may_use_http);
            let sender = Sender { tenant, may_use_http, client, secrets: &signing, now, span, departure };
            // The time counts from here: the action has not begun before.
            let done = tokio::time::timeout(timeout, perform_action(&action, &call, &sender)).await;
            done.map_or(Ending::TimedOut, Ending::from)
        };
        let ended = tokio::select! {
            // If the action completes at the moment of a stop, its outcome counts.
            biased;
            ending = performed => Ok(ending),
            stop = &mut *stopped => Err(stop),
        };
        match ended {
            // Nothing was sent, so this is no outcome. The stop comes with the next heartbeat at the latest.
            Ok(Ending::TimedOut) if departure.is_prevented() => after_stop(stopped.await.ok()),
            Ok(ending) => Ok(ending),
            Err(stop) => after_stop(stop.ok()),
        }
    }

    /// Decrypts what the attempt sends, and parses its action. The first attempt of a team reads its key, and each reads the
    /// named secrets of its action. It repeats this until the database answers or the attempt is stopped, because the action
    /// has not begun yet.
    async fn open_secrets(
        &self,
        run: &Claimed,
        document: &Value,
        now: DateTime<Utc>,
    ) -> Result<(Action, Vec<SigningSecret>), Outcome> {
        let mut pause = FIRST_PAUSE;
        let failed = |error: String, again| Outcome::Failed { error, result: None, again };
        loop {
            match self.try_open_secrets(run, document, now).await {
                Ok((action, signing)) => {
                    let action = Action::parse(&action).map_err(|error| failed(error.detail, Again::Never))?;
                    return Ok((action, signing));
                }
                Err(SecretError::Database(error)) => {
                    tracing::warn!(run_id = %run.id, %error, "key of a team not read; trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error @ SecretError::OtherOrigin { .. }) => return Err(failed(error.to_string(), Again::Never)),
                // A secret may be created.
                Err(error @ SecretError::Unknown(_)) => return Err(failed(error.to_string(), Again::Later(None))),
                // Another instance may have the key. Its name is for operators only.
                Err(error) => {
                    tracing::error!(run_id = %run.id, %error, "secrets of an action not decrypted");
                    return Err(failed(NOT_DECRYPTED.to_owned(), Again::Later(None)));
                }
            }
        }
    }

    async fn try_open_secrets<'a>(
        &self,
        run: &Claimed,
        document: &'a Value,
        now: DateTime<Utc>,
    ) -> Result<(Cow<'a, Value>, Vec<SigningSecret>), SecretError> {
        let (secrets, pool) = (&self.parts.secrets, &self.parts.pool);
        let action = secrets.open_action(pool, run.team_id, document).await?;
        let action = secrets.resolve_references(pool, run.team_id, action).await?;
        let origin = origin_of_action(&action).unwrap_or_default();
        let mut signing = Vec::new();
        for (stored, is_derived) in run.signing_secrets(now) {
            let secret = secrets.open_signing_secret(pool, run.team_id, stored).await?;
            // A secret that is not valid derives nothing, and the signature refuses it with a reason.
            let derived = is_derived.then(|| secret.derive_for_receiver(&origin)).flatten();
            signing.push(derived.unwrap_or(secret));
        }
        Ok((action, signing))
    }

    /// Hands the run over, and repeats this until the instance exits.
    async fn hand_over(&self, run: &Claimed, sent: Sent) -> Left {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.try_hand_over(run, sent).await {
                Ok(None) => return Left::Taken,
                Ok(Some(state)) => {
                    tracing::info!(run_id = %run.id, "run handed over at shutdown; its state is now {}", state.in_words());
                    if state.is_terminal()
                        && let Err(error) = self.hand_on(run, false).await
                    {
                        tracing::warn!(run_id = %run.id, %error, "next queued run not started; the job `queue` starts it at its next turn");
                    }
                    return Left::Taken;
                }
                Err(error) => tracing::warn!(run_id = %run.id, %error, "run not handed over; trying again"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn try_hand_over(&self, run: &Claimed, sent: Sent) -> sqlx::Result<Option<RunState>> {
        let mut tx = db::begin_transaction(&self.parts.pool).await?;
        let now = self.parts.clock.now();
        let max_age = f64::from(self.parts.settings.max_age_secs);
        let state = hand_over::hand_over(&mut tx, self.parts.instance, run.fence(), sent, max_age, now).await?;
        tx.commit().await?;
        Ok(state)
    }

    /// Writes the outcome, however long the database is unavailable, because the action has been performed.
    async fn write_down(&self, run: &Claimed, mut verdict: Verdict) -> Left {
        let mut pause = FIRST_PAUSE;
        loop {
            if self.write_in_batch(run, &mut verdict).await == Ownership::Ours {
                return Left::Written(verdict);
            }
            match self.try_write_down(run, &mut verdict).await {
                Ok(Ownership::Ours) => return Left::Written(verdict),
                Ok(Ownership::Lost) => {
                    tracing::warn!(run_id = %run.id, "run lost before its outcome was recorded; the outcome is kept as a late result");
                    return Left::Taken;
                }
                Err(error) => {
                    tracing::warn!(run_id = %run.id, %error, "outcome of a run not written; trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Writes the end of a run together with concurrent ones; `Lost` if it may be unwritten.
    async fn write_in_batch(&self, run: &Claimed, verdict: &mut Verdict) -> Ownership {
        // A run that is tried again does not end.
        let (Some(ends), None) = (&self.ends, verdict.again_at) else { return Ownership::Lost };
        let ended = ends.end_run(run, &verdict.finished(), self.parts.clock.now()).await;
        verdict.has_no_queue = ended == Ended::WithoutQueue;
        if ended == Ended::Unknown { Ownership::Lost } else { Ownership::Ours }
    }

    /// Writes the outcome; if a retry is refused because its run is to be cancelled, the verdict becomes the cancellation.
    async fn try_write_down(&self, run: &Claimed, verdict: &mut Verdict) -> sqlx::Result<Ownership> {
        let (instance, now) = (self.parts.instance, self.parts.clock.now());
        let mut connection = self.parts.pool.acquire().await?;
        if let Some(run_after) = verdict.again_at {
            let error = verdict.error.as_deref();
            match claim::try_run_again(&mut connection, instance, run, error, run_after).await? {
                Ownership::Ours => return Ok(Ownership::Ours),
                // The run was cancelled meanwhile, or this attempt has lost it.
                Ownership::Lost => {}
            }
        }
        let finished = verdict.finished();
        let state = finished.state;
        if claim::finish_run(&mut connection, instance, run.fence(), &finished, now).await? == Ownership::Ours {
            verdict.become_final();
            return Ok(Ownership::Ours);
        }
        // The reply to our own commit may be lost. Then the row already has the outcome that we would write.
        let Some(found) = claim::find_after_loss(&mut connection, run.id).await? else { return Ok(Ownership::Lost) };
        if found.attempt == run.attempt && found.state == state {
            verdict.become_final();
            return Ok(Ownership::Ours);
        }
        if verdict.again_at.is_some() && found.tries > run.tries {
            return Ok(Ownership::Ours);
        }
        claim::keep_late_result(&mut connection, run, &late(run, verdict, now)).await?;
        Ok(Ownership::Lost)
    }

    async fn ended(&self, run: &Claimed, verdict: &Verdict) {
        pass_point(Point::I6);
        announce(run, verdict);
        if verdict.again_at.is_some() {
            return;
        }
        if matches!(verdict.state, RunState::Failed | RunState::TimedOut) {
            auto_pause::pause_after(&self.parts.pool, &self.parts.clock, &self.parts.notifier, run).await;
        }
        if let Err(error) = self.hand_on(run, verdict.has_no_queue).await {
            tracing::warn!(run_id = %run.id, %error, "next queued run not started; the job `queue` starts it at its next turn");
        }
        if let Some(backfill) = run.backfill_id
            && let Err(error) = self.refill(backfill, WorkflowId(run.workflow_id)).await
        {
            tracing::warn!(run_id = %run.id, %error, "next run of a backfill not created; the job `backfills` creates it at its next turn");
        }
    }

    async fn refill(&self, backfill: Uuid, workflow: WorkflowId) -> sqlx::Result<()> {
        let default = self.parts.settings.requested_fires;
        if refill_backfill(&self.parts.pool, backfill, workflow, default, self.parts.clock.now()).await? > 0 {
            self.parts.wake.notify();
        }
        Ok(())
    }

    /// Gives the free slot to the next queued run.
    async fn hand_on(&self, run: &Claimed, has_no_queue: bool) -> sqlx::Result<()> {
        // Under these policies another transaction may be queueing a run now, and only a check under the workflow's
        // lock sees it.
        let may_wait = matches!(run.overlap_policy, Overlap::Queue | Overlap::QueueOne | Overlap::Replace);
        let workflow = WorkflowId(run.workflow_id);
        if may_wait || !has_no_queue && queue::has_queued_run(&mut *self.parts.pool.acquire().await?, workflow).await? {
            let advanced = queue::advance_workflow(&self.parts.pool, workflow, self.parts.clock.now()).await?;
            if advanced.promoted > 0 {
                self.parts.wake.notify();
            }
        }
        Ok(())
    }
}

impl Verdict {
    /// The outcome of a run that ends: if this attempt failed and the run is not tried again, it is to be cancelled.
    fn finished(&self) -> Finished<'_> {
        let (state, error) = match self.again_at {
            Some(_) => (RunState::Cancelled, Some(ReasonCode::CancelledOnRequest.as_str())),
            None => (self.state, self.error.as_deref()),
        };
        Finished { state, result: self.result.as_ref(), error, failed_tries: self.failed_tries }
    }

    /// Records that the run has ended: there is no next attempt, so its slot is free.
    fn become_final(&mut self) {
        let Finished { state, error, .. } = self.finished();
        let error = error.map(str::to_owned);
        (self.again_at, self.state, self.error) = (None, state, error);
    }
}

/// Begins the span of an attempt, which continues what created the run.
fn begin_span(run: &Claimed) -> Span {
    let span = Span::begin(Kind::Consumer, Parent::Header(run.traceparent.as_deref()), || "execute run".into());
    span.set("cronbox.workflow.id", run.workflow_id);
    span.set("cronbox.team.id", run.team_id);
    span.set_text("cronbox.run.id", run.id);
    span.set("cronbox.run.trigger", run.trigger.as_str());
    span.set("cronbox.run.attempt", i64::from(run.attempt));
    span
}

/// Ends the span of an attempt, whose outcome the metrics count by the same word.
fn end_span(span: Span, outcome: ActionOutcome) {
    span.set("cronbox.run.outcome", outcome.as_str());
    if outcome != ActionOutcome::Succeeded {
        span.fail(outcome.as_str());
    }
}

/// The outcome of an action, as the metrics count it.
fn outcome_of(ending: &Result<Ending, Cut>) -> ActionOutcome {
    match ending {
        Ok(Ending::Succeeded(_)) => ActionOutcome::Succeeded,
        Ok(Ending::TimedOut) => ActionOutcome::TimedOut,
        Ok(Ending::Cancelled) => ActionOutcome::Cancelled,
        Ok(Ending::Failed { result, again, .. }) => {
            match (result.as_ref().and_then(|result| result["status"].as_u64()), again) {
                // The answer ended before its body did.
                (Some(200..300), _) => ActionOutcome::NoAnswer,
                (Some(500..), _) => ActionOutcome::ReceiverFailed,
                (Some(_), _) => ActionOutcome::Refused,
                (None, Again::Never) => ActionOutcome::NotSent,
                (None, Again::Later(_)) => ActionOutcome::NoAnswer,
            }
        }
        Err(Cut::Lost) => ActionOutcome::Lost,
        Err(Cut::HandedOver) => ActionOutcome::HandedOver,
    }
}

/// What an attempt does that must stop; without a reason another attempt has replaced it, so it must not continue.
fn after_stop(stop: Option<Stop>) -> Result<Ending, Cut> {
    match stop {
        Some(Stop::Cancelled) => Ok(Ending::Cancelled),
        Some(Stop::HandedOver) => Err(Cut::HandedOver),
        Some(Stop::Lost) | None => Err(Cut::Lost),
    }
}

fn verdict(run: &Claimed, ending: Ending, now: DateTime<Utc>) -> Verdict {
    let plain =
        |state| Verdict { state, again_at: None, failed_tries: 0, result: None, error: None, has_no_queue: false };
    let again_at = |at_least| next_try(run.tries, run.max_attempts, at_least, now);
    match ending {
        Ending::Succeeded(result) => Verdict { result: Some(result), ..plain(RunState::Succeeded) },
        Ending::TimedOut => {
            let error = Some(Reason::with_fact(ReasonCode::TimedOut, run.timeout_secs).to_string());
            Verdict { again_at: again_at(None), failed_tries: 1, error, ..plain(RunState::TimedOut) }
        }
        Ending::Failed { error, result, again } => {
            let again_at = match again {
                Again::Never => None,
                Again::Later(at_least) => again_at(at_least),
            };
            Verdict { again_at, failed_tries: 1, result, error: Some(error), ..plain(RunState::Failed) }
        }
        Ending::Cancelled => {
            let error = Some(ReasonCode::CancelledOnRequest.as_str().to_owned());
            Verdict { error, ..plain(RunState::Cancelled) }
        }
    }
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
    let in_words = |error: &str| Reason::parse(error).map_or_else(|| error.to_owned(), |reason| reason.sentence());
    let error = verdict.error.as_deref().map(in_words);
    let how = match (&error, verdict.again_at) {
        (None, _) => "succeeded".to_owned(),
        (Some(_), None) => verdict.state.in_words().to_owned(),
        (Some(_), Some(at)) => {
            format!("failed, next attempt after {}", at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))
        }
    };
    tracing::info!(
        step = 7,
        workflow_id = run.workflow_id,
        run_id = %run.id,
        error,
        "run: {} of workflow {} {how}",
        run.id,
        run.workflow_id,
    );
}
