//! Between steps 5 and 6 of 7: Lambda's asynchronous invoke.
//!
//! An event is queued, and the caller is done. If the function fails, it is retried twice, after one and two minutes;
//! then the event goes to its on-failure queue. All waits use the business clock, so that a test can skip them.

pub(crate) mod function;
mod queue;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::join_all;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};
use uuid::Uuid;

use crate::dead_letters::{DeadLetter, DeadLetters, FailedEvent};
pub use function::{FunctionError, Handler};
use queue::{Event, Function, Queue};

/// How Lambda behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// The pause before each retry; there are as many retries as pauses
    pub retry_after: Vec<TimeDelta>,
    /// How long one call of a function may take
    pub timeout: Duration,
    /// How many events are processed at once
    pub concurrency: usize,
    /// Lambda may deliver an event more than once
    pub delivery: Delivery,
    /// What happens to an event for a function that is not registered
    pub unknown: UnknownFunction,
}

/// How often an event is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The event is delivered once, and again after each failure
    Once,
    /// The event is always delivered twice: the worst case of at-least-once delivery
    Twice,
}

/// What happens to an event for a function that is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownFunction {
    /// The invoke is refused, as in Lambda
    Refused,
    /// The event is accepted and has no effect: the stand-in without other parts has no functions
    Taken,
}

/// Lambda's answer to an invoke of a function that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchFunction(pub String);

/// The functions of one account and the events queued for them; clones share the account.
#[derive(Clone)]
pub struct Lambda(Arc<Shared>);

struct Shared {
    options: Options,
    slots: Semaphore,
    functions: Mutex<HashMap<String, Function>>,
    queue: Mutex<Queue>,
    queued: Notify,
    dead_letters: DeadLetters,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            retry_after: vec![TimeDelta::minutes(1), TimeDelta::minutes(2)],
            timeout: Duration::from_secs(15),
            concurrency: 100,
            delivery: Delivery::Once,
            unknown: UnknownFunction::Refused,
        }
    }
}

impl Lambda {
    /// Creates an account without functions, whose failures go to `dead_letters`.
    pub fn new(options: Options, dead_letters: DeadLetters) -> Lambda {
        Lambda(Arc::new(Shared {
            slots: Semaphore::new(options.concurrency),
            options,
            functions: Mutex::default(),
            queue: Mutex::default(),
            queued: Notify::new(),
            dead_letters,
        }))
    }

    /// Registers `handler` as the function `arn`; failed events go to the queue `on_failure`.
    pub fn register_function(&self, arn: &str, on_failure: &str, handler: Handler) {
        let function = Function { arn: arn.to_owned(), on_failure: on_failure.to_owned(), handler };
        lock(&self.0.functions).insert(arn.to_owned(), function);
    }

    /// Queues an event for delivery at `now` or soon after.
    ///
    /// # Errors
    /// Fails if the function does not exist.
    pub fn invoke_function(&self, arn: &str, payload: Value, now: DateTime<Utc>) -> Result<(), NoSuchFunction> {
        let function = lock(&self.0.functions).get(arn).cloned();
        let Some(function) = function else {
            return match self.0.options.unknown {
                UnknownFunction::Refused => Err(NoSuchFunction(arn.to_owned())),
                UnknownFunction::Taken => Ok(()),
            };
        };
        let event = Event { request_id: Uuid::new_v4(), function, payload, tries: 0 };
        let mut queue = lock(&self.0.queue);
        if self.0.options.delivery == Delivery::Twice {
            queue.push(now, event.clone());
        }
        queue.push(now, event);
        self.0.queued.notify_one();
        Ok(())
    }

    /// When the next queued event is to be delivered.
    pub fn next_due(&self) -> Option<DateTime<Utc>> {
        lock(&self.0.queue).next_due()
    }

    /// The number of events that are queued, wait for a retry or are processed.
    pub fn count_pending(&self) -> usize {
        lock(&self.0.queue).count_pending()
    }

    /// Delivers all events that are due at `now`, and returns after each was answered.
    pub async fn deliver_due(&self, now: DateTime<Utc>) {
        loop {
            let due = lock(&self.0.queue).take_due(now);
            if due.is_empty() {
                return;
            }
            join_all(due.into_iter().map(|event| self.deliver(event, now))).await;
        }
    }

    /// Returns after an event was queued since the last call.
    pub async fn wait_until_queued(&self) {
        self.0.queued.notified().await;
    }

    async fn deliver(&self, mut event: Event, now: DateTime<Utc>) {
        let outcome = self.call(&event).await;
        event.tries += 1;
        let mut queue = lock(&self.0.queue);
        queue.in_flight -= 1;
        let Err(error) = outcome else { return };
        match self.0.options.retry_after.get(event.tries - 1) {
            Some(pause) => {
                tracing::warn!(%error, "function failed at try {}; it is tried again in {} s", event.tries, pause.num_seconds());
                queue.push(now + *pause, event);
                self.0.queued.notify_one();
            }
            None => {
                tracing::warn!(%error, "function failed at try {}; its event is sent to the dead-letter queue", event.tries);
                let failed = FailedEvent {
                    request_id: event.request_id,
                    function: &event.function.arn,
                    payload: &event.payload,
                    tries: event.tries,
                };
                self.0.dead_letters.push(DeadLetter::of_function(&event.function.on_failure, &failed, &error, now));
            }
        }
    }

    async fn call(&self, event: &Event) -> Result<(), FunctionError> {
        // The semaphore is never closed; but even without a slot the event should run rather than be lost.
        let _slot = self.0.slots.acquire().await.ok();
        let timeout = self.0.options.timeout;
        match tokio::time::timeout(timeout, (event.function.handler)(event.payload.clone())).await {
            Ok(answer) => answer,
            Err(_) => Err(FunctionError {
                error_type: "Sandbox.Timedout".to_owned(),
                message: format!("Task timed out after {:.2} seconds", timeout.as_secs_f64()),
            }),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const FUNCTION: &str = "arn:aws:lambda:us-east-1:123456789012:function:runner";
    const ON_FAILURE: &str = "arn:aws:sqs:us-east-1:123456789012:runner-failures";

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    /// Registers a function that fails its first `failures` calls; returns its number of calls.
    fn flaky(lambda: &Lambda, failures: usize) -> Arc<AtomicUsize> {
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let handler: Handler = Arc::new(move |_| {
            let failed = counter.fetch_add(1, Ordering::SeqCst) < failures;
            let error = FunctionError { error_type: "Refused".to_owned(), message: "the app is down".to_owned() };
            Box::pin(std::future::ready(if failed { Err(error) } else { Ok(()) }))
        });
        lambda.register_function(FUNCTION, ON_FAILURE, handler);
        calls
    }

    /// The retries come after one and two minutes; then the event is in the dead-letter queue.
    #[tokio::test]
    async fn failed_events_are_retried_twice() {
        let dead_letters = DeadLetters::default();
        let lambda = Lambda::new(Options::default(), dead_letters.clone());
        let calls = flaky(&lambda, 3);
        lambda.invoke_function(FUNCTION, json!({"workflow_id": 7}), at("2026-01-01T00:00:00Z")).unwrap();
        lambda.deliver_due(at("2026-01-01T00:00:00Z")).await;
        assert_eq!(lambda.next_due(), Some(at("2026-01-01T00:01:00Z")));
        lambda.deliver_due(at("2026-01-01T00:00:59Z")).await;
        assert_eq!(calls.load(Ordering::SeqCst), 1, "not before its minute is over");
        lambda.deliver_due(at("2026-01-01T00:01:00Z")).await;
        assert_eq!((lambda.next_due(), lambda.count_pending()), (Some(at("2026-01-01T00:03:00Z")), 1));
        lambda.deliver_due(at("2026-01-01T00:03:00Z")).await;
        assert_eq!((calls.load(Ordering::SeqCst), lambda.count_pending()), (3, 0));
        let [message] = &dead_letters.all_messages()[..] else { panic!("one dead letter") };
        assert_eq!(message.queue, ON_FAILURE);
        assert_eq!(message.body["requestPayload"], json!({"workflow_id": 7}));
        assert_eq!(message.body["requestContext"]["condition"], "RetriesExhausted");
        assert_eq!(message.body["requestContext"]["approximateInvokeCount"], 3);
        assert_eq!(message.body["responsePayload"]["errorMessage"], "the app is down");
    }

    #[tokio::test]
    async fn recovered_functions_leave_no_dead_letter() {
        let dead_letters = DeadLetters::default();
        let lambda = Lambda::new(Options::default(), dead_letters.clone());
        let calls = flaky(&lambda, 1);
        lambda.invoke_function(FUNCTION, json!({}), at("2026-01-01T00:00:00Z")).unwrap();
        lambda.deliver_due(at("2026-01-01T00:00:00Z")).await;
        lambda.deliver_due(at("2026-01-01T00:01:00Z")).await;
        assert_eq!(
            (calls.load(Ordering::SeqCst), lambda.count_pending(), dead_letters.all_messages().len()),
            (2, 0, 0)
        );
    }

    #[tokio::test]
    async fn the_option_delivers_events_twice() {
        let lambda = Lambda::new(Options { delivery: Delivery::Twice, ..Options::default() }, DeadLetters::default());
        let calls = flaky(&lambda, 0);
        lambda.invoke_function(FUNCTION, json!({}), at("2026-01-01T00:00:00Z")).unwrap();
        lambda.deliver_due(at("2026-01-01T00:00:00Z")).await;
        assert_eq!(calls.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn unknown_functions_are_refused() {
        let lambda = Lambda::new(Options::default(), DeadLetters::default());
        let refused = lambda.invoke_function(FUNCTION, json!({}), at("2026-01-01T00:00:00Z"));
        assert_eq!(refused, Err(NoSuchFunction(FUNCTION.to_owned())));
    }
}
