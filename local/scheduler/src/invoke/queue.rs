//! Between steps 5 and 6 of 7: the events that wait for a function, in the order of their times.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use super::function::Handler;

#[derive(Clone)]
pub(super) struct Function {
    pub(super) arn: String,
    pub(super) on_failure: String,
    pub(super) handler: Handler,
}

#[derive(Default)]
pub(super) struct Queue {
    events: BTreeMap<(DateTime<Utc>, u64), Event>,
    numbered: u64,
    pub(super) in_flight: usize,
}

#[derive(Clone)]
pub(super) struct Event {
    pub(super) request_id: Uuid,
    pub(super) function: Function,
    pub(super) payload: Value,
    pub(super) tries: usize,
}

impl Queue {
    pub(super) fn push(&mut self, at: DateTime<Utc>, event: Event) {
        self.numbered += 1;
        self.events.insert((at, self.numbered), event);
    }

    /// When the next event is to be delivered.
    pub(super) fn next_due(&self) -> Option<DateTime<Utc>> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// The events that wait, and those that are processed.
    pub(super) fn count_pending(&self) -> usize {
        self.events.len() + self.in_flight
    }

    /// Takes the events that are due at `now`; they are in flight from here on.
    pub(super) fn take_due(&mut self, now: DateTime<Utc>) -> Vec<Event> {
        let later = self.events.split_off(&(now, u64::MAX));
        let due: Vec<Event> = std::mem::replace(&mut self.events, later).into_values().collect();
        self.in_flight += due.len();
        due
    }
}
