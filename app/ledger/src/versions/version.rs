//! Step 1 of 7: a schedule version, and whether a time is due by it.

use chrono::{DateTime, Utc};
use schedule::ZoneHistory;
use workflows::State;
use workflows::definition::spec::{Timing, Unknown};

/// The timing in force over a span of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The revision of this timing.
    pub revision: i64,
    /// Start of the span, inclusive.
    pub valid_from: DateTime<Utc>,
    /// End of the span, where the next version begins; `None` while it is in force.
    pub ended_on: Option<DateTime<Utc>>,
    /// What ended it.
    pub ended_by: Option<EndedBy>,
    /// Its cron, timezone and window.
    pub timing: Timing,
    /// The workflow's state over the span.
    pub state: State,
}

/// What ended a schedule version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// A change of its timing, or a resume.
    Edit,
    /// A pause.
    Pause,
    /// The archiving of its workflow.
    Archive,
}

/// Whether a time is due by a schedule version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueCheck {
    /// It is due.
    Due,
    /// The workflow was paused or archived at that time.
    Paused,
    /// The time is before `starts_at`, or not before `ends_at`.
    OutsideWindow,
    /// The cron does not name this time, or there was none.
    NotDue,
    /// The timezone or the cron is not known any more, so it cannot be computed.
    Unjudged,
}

impl Version {
    /// Evaluates one time of this version's span, by the zone data that were in force at it.
    #[must_use]
    pub fn check_due(&self, time: DateTime<Utc>) -> DueCheck {
        if self.state != State::Active {
            return DueCheck::Paused;
        }
        if !self.timing.is_in_window(time) {
            return DueCheck::OutsideWindow;
        }
        match self.timing.parsed_at(time) {
            Ok(None) => DueCheck::NotDue,
            Ok(Some((cron, timezone))) if cron.matches(time, timezone) => DueCheck::Due,
            Ok(Some(_)) => DueCheck::NotDue,
            // The timezone is not known any more, but its last rules are.
            Err(Unknown) if self.timing.is_surplus(time, &ZoneHistory::installed()) => DueCheck::NotDue,
            Err(Unknown) => DueCheck::Unjudged,
        }
    }
}
