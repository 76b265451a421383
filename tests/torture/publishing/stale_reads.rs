//! Stale reads: for a few seconds after a write, AWS may still return the state before it.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};

/// How long a read may lag behind a write. A verify pass begins one minute after the last signature has expired.
const LAG: TimeDelta = TimeDelta::seconds(5);

/// The answers to all reads so far, by their URI.
#[derive(Default)]
pub(crate) struct Lag(BTreeMap<String, Option<Shown>>);

struct Shown {
    /// The time of the write that the answer does not show.
    until: DateTime<Utc>,
    answer: (u16, Vec<u8>),
}

impl Lag {
    /// From now on, keeps the answer of `uri` before each write.
    pub(crate) fn keep(&mut self, uri: &str) {
        self.0.entry(uri.to_owned()).or_default();
    }

    pub(crate) fn kept(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// Records `answer` of `uri` before a write.
    pub(crate) fn note(&mut self, uri: String, answer: (u16, Vec<u8>), now: DateTime<Utc>) {
        self.0.insert(uri, Some(Shown { until: now, answer }));
    }

    /// The stale answer that `uri` may still return.
    pub(crate) fn shown(&self, uri: &str, now: DateTime<Utc>) -> Option<(u16, Vec<u8>)> {
        let shown = self.0.get(uri)?.as_ref()?;
        (now - shown.until <= LAG).then(|| shown.answer.clone())
    }
}
