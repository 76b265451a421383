//! The dead-letter queues of the stand-in, which keep and list what could not be delivered.
//!
//! As with AWS, messages have two sources: Scheduler could not invoke (the schedule's queue), or the function failed
//! permanently (its on-failure queue).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::clock::Clock;
use crate::invoke::function::FunctionError;

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeadLetter {
    /// The queue's ARN
    pub queue: String,
    /// The message's body
    pub body: Value,
    /// The message's attributes, all strings
    pub attributes: BTreeMap<String, String>,
}

/// A fire that Scheduler could not send.
pub struct UnsentFire<'a> {
    /// The schedule's full name
    pub schedule_arn: &'a str,
    /// The scheduled time of the fire
    pub scheduled_time: &'a str,
    /// The id of this fire
    pub execution_id: &'a str,
    /// The function
    pub target_arn: &'a str,
    /// The payload for the function
    pub payload: &'a str,
    /// AWS's code
    pub error_code: &'a str,
    /// A sentence
    pub error_message: &'a str,
    /// The retry condition that was exhausted; a permanent error exhausts none
    pub exhausted: Option<&'a str>,
}

/// An event that a function could not handle.
pub struct FailedEvent<'a> {
    /// The id of the invoke
    pub request_id: Uuid,
    /// The function's full name
    pub function: &'a str,
    /// The event
    pub payload: &'a Value,
    /// How often the function was tried
    pub tries: usize,
}

impl DeadLetter {
    /// The message that Scheduler sends to a schedule's queue: the API request, with the reason in attributes.
    pub fn of_schedule(queue: &str, fire: &UnsentFire<'_>) -> DeadLetter {
        let always = [
            ("ERROR_CODE", fire.error_code),
            ("ERROR_MESSAGE", fire.error_message),
            ("EXECUTION_ID", fire.execution_id),
            ("IS_PAYLOAD_TRUNCATED", "false"),
            ("RETRY_ATTEMPTS", "0"),
            ("SCHEDULED_TIME", fire.scheduled_time),
            ("SCHEDULE_ARN", fire.schedule_arn),
            ("TARGET_ARN", "arn:aws:scheduler:::aws-sdk:lambda:invoke"),
        ];
        let exhausted = fire.exhausted.map(|condition| ("EXHAUSTED_RETRY_CONDITION", condition));
        let attributes = always.into_iter().chain(exhausted);
        DeadLetter {
            queue: queue.to_owned(),
            body: json!({
                "FunctionName": fire.target_arn,
                "InvocationType": "Event",
                "Payload": fire.payload,
            }),
            attributes: attributes.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        }
    }

    /// The message that Lambda sends to an on-failure destination.
    pub fn of_function(queue: &str, event: &FailedEvent<'_>, error: &FunctionError, now: DateTime<Utc>) -> DeadLetter {
        DeadLetter {
            queue: queue.to_owned(),
            attributes: BTreeMap::new(),
            body: json!({
                "version": "1.0",
                "timestamp": now.to_rfc3339_opts(SecondsFormat::Millis, true),
                "requestContext": {
                    "requestId": event.request_id,
                    "functionArn": format!("{}:$LATEST", event.function),
                    "condition": "RetriesExhausted",
                    "approximateInvokeCount": event.tries,
                },
                "requestPayload": event.payload,
                "responseContext": {
                    "statusCode": 200,
                    "executedVersion": "$LATEST",
                    "functionError": "Unhandled",
                },
                "responsePayload": { "errorType": error.error_type, "errorMessage": error.message },
            }),
        }
    }
}

/// A message in its queue.
#[derive(Clone, Debug)]
pub(crate) struct KeptLetter {
    pub(crate) id: Uuid,
    pub(crate) letter: DeadLetter,
    /// By the machine's clock.
    pub(crate) sent_on: DateTime<Utc>,
    /// Names its last receive; 0: it was never received.
    pub(crate) receipt: u64,
    pub(crate) receives: u64,
    hidden_until: Option<Instant>,
}

#[derive(Default)]
struct Kept {
    letters: Vec<KeptLetter>,
    /// Queues that have, or have had, messages.
    queues: BTreeSet<String>,
    receipts: u64,
}

/// The messages of all queues, oldest first; clones share the list.
#[derive(Clone, Default)]
pub struct DeadLetters(Arc<Mutex<Kept>>);

impl DeadLetters {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message.
    pub fn push(&self, letter: DeadLetter) {
        let mut kept = self.kept();
        kept.queues.insert(letter.queue.clone());
        let (id, sent_on) = (Uuid::new_v4(), Clock::System.now());
        kept.letters.push(KeptLetter { id, letter, sent_on, receipt: 0, receives: 0, hidden_until: None });
    }

    /// All messages, oldest first.
    pub fn all_messages(&self) -> Vec<DeadLetter> {
        self.kept().letters.iter().map(|kept| kept.letter.clone()).collect()
    }

    /// The ARNs of the queues.
    pub(crate) fn queue_names(&self) -> Vec<String> {
        self.kept().queues.iter().cloned().collect()
    }

    /// How many messages of a queue a consumer may receive now.
    pub(crate) fn count_visible(&self, queue: &str, now: Instant) -> usize {
        self.kept().letters.iter().filter(|kept| kept.is_visible(queue, now)).count()
    }

    /// How many messages of a queue consumers have received and not returned yet.
    pub(crate) fn count_in_flight(&self, queue: &str, now: Instant) -> usize {
        let in_flight = |kept: &&KeptLetter| kept.letter.queue == queue && !kept.is_visible(queue, now);
        self.kept().letters.iter().filter(in_flight).count()
    }

    /// Receives the oldest messages of a queue, and hides them for a while.
    pub(crate) fn receive(&self, queue: &str, most: usize, now: Instant, hidden: Duration) -> Vec<KeptLetter> {
        let mut kept = self.kept();
        let mut receipts = kept.receipts;
        let mut received = Vec::new();
        for letter in kept.letters.iter_mut().filter(|letter| letter.is_visible(queue, now)).take(most) {
            receipts += 1;
            (letter.receipt, letter.hidden_until) = (receipts, Some(now + hidden));
            letter.receives += 1;
            received.push(letter.clone());
        }
        kept.receipts = receipts;
        received
    }

    /// Deletes the message of a receive.
    pub(crate) fn delete(&self, receipt: u64) {
        self.kept().letters.retain(|letter| letter.receipt != receipt);
    }

    /// Hides the message of a receive until then.
    pub(crate) fn hide(&self, receipt: u64, until: Instant) {
        for letter in self.kept().letters.iter_mut().filter(|letter| letter.receipt == receipt) {
            letter.hidden_until = Some(until);
        }
    }
}

impl KeptLetter {
    fn is_visible(&self, queue: &str, now: Instant) -> bool {
        self.letter.queue == queue && self.hidden_until.is_none_or(|until| until <= now)
    }
}
