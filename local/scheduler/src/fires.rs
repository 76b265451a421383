//! Step 5 of 7: the loop that fires schedules.
//!
//! It uses the stand-in's own evaluation, replaces the context attributes and invokes the target as Scheduler does.
//! With the machine's clock `run_until` does this; a test that sets the clock calls `next_due` and `fire_and_deliver`.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;
use uuid::Builder;

use crate::dead_letters::{DeadLetter, DeadLetters, UnsentFire};
use crate::invoke::{Lambda, NoSuchFunction};
use crate::scheduler::Scheduler;
use crate::scheduler::constraint::Arn;
use crate::scheduler::spec::DEFAULT_RETRY_POLICY;
use crate::scheduler::stored_schedule::Due;

/// How the stand-in fires.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Seconds within the minute that `<aws.scheduler.scheduled-time>` shows: AWS does not clamp them to 0
    pub second: u8,
    /// Makes the execution ids repeatable
    pub seed: Option<u64>,
}

/// Fires schedules and delivers to their targets; clones share the state.
#[derive(Clone)]
pub struct Fires(Arc<Shared>);

struct Shared {
    scheduler: Scheduler,
    lambda: Lambda,
    dead_letters: DeadLetters,
    second: u8,
    random: Mutex<StdRng>,
    recent: Mutex<VecDeque<Fired>>,
}

/// A fire that was delivered or queued.
#[derive(Clone, Debug, Serialize)]
pub struct Fired {
    /// The schedule's full name
    pub schedule_arn: String,
    /// The time as `<aws.scheduler.scheduled-time>` shows it
    pub scheduled_time: String,
    /// The function
    pub target_arn: String,
    /// The payload, context attributes filled in
    pub payload: Value,
}

/// How many of the last fires are kept for a test or an operator.
const KEPT_FIRES: usize = 1_000;

/// The longest wait, because the machine's clock may jump (suspend, time servers).
const LONGEST_WAIT: Duration = Duration::from_secs(1);

impl Fires {
    /// Connects the schedules with the functions that they invoke.
    pub fn new(scheduler: Scheduler, lambda: Lambda, dead_letters: DeadLetters, options: Options) -> Fires {
        let random = options.seed.map_or_else(rand::make_rng, StdRng::seed_from_u64);
        Fires(Arc::new(Shared {
            scheduler,
            lambda,
            dead_letters,
            second: options.second.min(59),
            random: Mutex::new(random),
            recent: Mutex::default(),
        }))
    }

    /// Returns the next time at which a schedule fires or a delivery is retried, if that is not after `until`.
    pub fn next_due(&self, until: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let retry = self.0.lambda.next_due().filter(|at| *at <= until);
        self.0.scheduler.next_due(until).into_iter().chain(retry).min()
    }

    /// Fires every schedule that is due at `now`, in the order of time; returns how many. Nothing is delivered yet.
    pub fn fire_due(&self, now: DateTime<Utc>) -> usize {
        let due = self.0.scheduler.take_due(now);
        due.iter().for_each(|due| self.fire(due, now));
        due.len()
    }

    /// Fires what is due at `now`, and returns after every delivery was answered.
    pub async fn fire_and_deliver(&self, now: DateTime<Utc>) -> usize {
        let fired = self.fire_due(now);
        self.0.lambda.deliver_due(now).await;
        fired
    }

    /// Fires by the schedules' clock until `shutdown`; then finishes the deliveries in progress.
    pub async fn run_until(&self, shutdown: impl Future<Output = ()>) {
        let deliveries = TaskTracker::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let now = self.0.scheduler.clock().now();
            self.fire_due(now);
            if self.0.lambda.next_due().is_some_and(|at| at <= now) {
                let lambda = self.0.lambda.clone();
                deliveries.spawn(async move { lambda.deliver_due(now).await });
                tokio::task::yield_now().await;
            }
            let wait = self.next_due(now + TimeDelta::seconds(1)).map_or(LONGEST_WAIT, |at| until(at, now));
            tokio::select! {
                () = &mut shutdown => break,
                () = tokio::time::sleep(wait) => {}
                () = self.0.scheduler.wait_until_changed() => {}
                () = self.0.lambda.wait_until_queued() => {}
            }
        }
        deliveries.close();
        deliveries.wait().await;
    }

    /// The last fires, oldest first.
    pub fn recent_fires(&self) -> Vec<Fired> {
        lock(&self.0.recent).iter().cloned().collect()
    }

    fn fire(&self, due: &Due, now: DateTime<Utc>) {
        let payload = Payload::of(due, self.0.second, self.execution_id());
        let age = now - due.at;
        let policy = due.schedule.spec.target.retry_policy.clone().unwrap_or(DEFAULT_RETRY_POLICY);
        if age.num_seconds() > policy.maximum_event_age_in_seconds.unwrap_or(i64::MAX) {
            return self.dead_letter(due, &payload, Failure::TooOld);
        }
        let body = payload.body();
        tracing::info!(
            step = 5,
            workflow_id = body["workflow_id"].as_i64(),
            schedule = %due.schedule.key.name,
            "fire: {} for {}",
            due.schedule.key.name,
            payload.scheduled_time
        );
        if let Err(NoSuchFunction(arn)) = self.0.lambda.invoke_function(&payload.target_arn, body.clone(), now) {
            return self.dead_letter(due, &payload, Failure::NoSuchFunction(arn));
        }
        let mut recent = lock(&self.0.recent);
        if recent.len() == KEPT_FIRES {
            recent.pop_front();
        }
        recent.push_back(Fired {
            schedule_arn: due.schedule.arn.clone(),
            scheduled_time: payload.scheduled_time,
            target_arn: payload.target_arn,
            payload: body,
        });
    }

    /// Scheduler's own failures go to the schedule's queue; without a queue they are dropped, as in AWS.
    fn dead_letter(&self, due: &Due, payload: &Payload, failure: Failure) {
        let name = &due.schedule.key.name;
        let (code, message, exhausted) = failure.attributes();
        let queue = due.schedule.spec.target.dead_letter_config.as_ref().and_then(|config| config.arn.clone());
        let Some(queue) = queue else {
            tracing::warn!("fire dropped: {name} for {}: {message}", payload.scheduled_time);
            return;
        };
        tracing::warn!("fire sent to the dead-letter queue: {name} for {}: {message}", payload.scheduled_time);
        self.0.dead_letters.push(DeadLetter::of_schedule(
            &queue,
            &UnsentFire {
                schedule_arn: &due.schedule.arn,
                scheduled_time: &payload.scheduled_time,
                execution_id: &payload.execution_id,
                target_arn: &payload.target_arn,
                payload: &payload.text,
                error_code: code,
                error_message: &message,
                exhausted,
            },
        ));
    }

    fn execution_id(&self) -> String {
        Builder::from_random_bytes(lock(&self.0.random).random()).into_uuid().to_string()
    }
}

/// Why Scheduler could not invoke.
enum Failure {
    NoSuchFunction(String),
    TooOld,
}

impl Failure {
    /// Code, message, and the exhausted retry condition; a permanent error exhausts none.
    fn attributes(self) -> (&'static str, String, Option<&'static str>) {
        match self {
            Failure::NoSuchFunction(arn) => ("ResourceNotFoundException", format!("Function not found: {arn}"), None),
            Failure::TooOld => (
                "AWS.Scheduler.InternalServerError",
                "The event was older than its retry policy allows".to_owned(),
                Some("MaximumEventAgeInSeconds"),
            ),
        }
    }
}

/// The payload for the target.
struct Payload {
    text: String,
    scheduled_time: String,
    execution_id: String,
    target_arn: String,
}

impl Payload {
    /// Replaces the context attributes in the text, or creates AWS's default notification.
    fn of(due: &Due, second: u8, execution_id: String) -> Payload {
        let target = &due.schedule.spec.target;
        let scheduled_time =
            (due.at + TimeDelta::seconds(i64::from(second))).to_rfc3339_opts(SecondsFormat::Secs, true);
        let text = match &target.input {
            Some(input) => input
                .replace("<aws.scheduler.scheduled-time>", &scheduled_time)
                .replace("<aws.scheduler.execution-id>", &execution_id)
                .replace("<aws.scheduler.attempt-number>", "1")
                .replace("<aws.scheduler.schedule-arn>", &due.schedule.arn),
            None => default_notification(due, &scheduled_time, &execution_id).to_string(),
        };
        Payload { text, scheduled_time, execution_id, target_arn: target.arn.clone().unwrap_or_default() }
    }

    /// The payload as JSON; for a target that is not a function it may be any text.
    fn body(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| Value::String(self.text.clone()))
    }
}

fn default_notification(due: &Due, scheduled_time: &str, id: &str) -> Value {
    let arn = Arn::parse(&due.schedule.arn);
    json!({
        "version": "0",
        "id": id,
        "detail-type": "Scheduled Event",
        "source": "aws.scheduler",
        "account": arn.as_ref().map(|arn| arn.account),
        "time": scheduled_time,
        "region": arn.as_ref().map(|arn| arn.region),
        "resources": [due.schedule.arn],
        "detail": "{}",
    })
}

fn until(at: DateTime<Utc>, now: DateTime<Utc>) -> Duration {
    (at - now).to_std().unwrap_or(Duration::ZERO)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
