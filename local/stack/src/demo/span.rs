//! The span of the demo's history.

use chrono::{DateTime, TimeDelta, Utc};

/// How many days the history has, as many as the app keeps.
pub(super) const DAYS: i64 = 90;

/// The span of the history.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) begin: DateTime<Utc>,
    /// All times up to here are decided; the running parts decide the later ones.
    pub(super) end: DateTime<Utc>,
}

impl Span {
    pub(super) fn days_ago(self, days: i64) -> DateTime<Utc> {
        self.end - TimeDelta::days(days)
    }
}
