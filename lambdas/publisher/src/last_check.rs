//! Steps 3 and 4 of 7: when this process last made a check that is due only once in a while.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When a check was last made.
#[derive(Debug, Default)]
pub(crate) struct LastCheck(Mutex<Option<Instant>>);

impl LastCheck {
    /// Whether the check is due at `now`; if so, the next one is due an `interval` later.
    pub(crate) fn is_due(&self, interval: Duration, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= interval);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}
