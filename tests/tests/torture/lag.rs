//! What reads have shown before the last write: for a few seconds AWS may show it once more.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};

/// For how long a read may lag behind a write. A verify pass begins a minute after the last signature has died.
const LAG: TimeDelta = TimeDelta::seconds(5);

/// The reads that were ever asked for, by their URI.
#[derive(Default)]
pub(crate) struct Lag(BTreeMap<String, Option<Shown>>);

struct Shown {
    /// When the write came that this does not show.
    until: DateTime<Utc>,
    answer: (u16, Vec<u8>),
}

impl Lag {
    /// From now on it is kept what `uri` shows before a write.
    pub(crate) fn keep(&mut self, uri: &str) {
        self.0.entry(uri.to_owned()).or_default();
    }

    pub(crate) fn kept(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// `uri` shows `answer`, and a write comes.
    pub(crate) fn note(&mut self, uri: String, answer: (u16, Vec<u8>), now: DateTime<Utc>) {
        self.0.insert(uri, Some(Shown { until: now, answer }));
    }

    /// What `uri` may still show although it is no longer so.
    pub(crate) fn shown(&self, uri: &str, now: DateTime<Utc>) -> Option<(u16, Vec<u8>)> {
        let shown = self.0.get(uri)?.as_ref()?;
        (now - shown.until <= LAG).then(|| shown.answer.clone())
    }
}
