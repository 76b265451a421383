//! The dead-letter queues of the stand-in: what could not be delivered, kept and listed.
//!
//! Two roads lead here, as with AWS: Scheduler could not invoke (the schedule's queue), or the function failed for
//! good (its on-failure queue).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde_json::Value;

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

/// All queues in one list, oldest first; clones are the same list.
#[derive(Clone, Default)]
pub struct DeadLetters(Arc<Mutex<Vec<DeadLetter>>>);

impl DeadLetters {
    /// Keeps a message.
    pub fn push(&self, letter: DeadLetter) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(letter);
    }

    /// All messages, oldest first.
    pub fn all(&self) -> Vec<DeadLetter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
