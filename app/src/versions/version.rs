//! Step 1 of 7: a schedule version, and whether a time is due by it.

use chrono::{DateTime, Utc};
use schedule::{Cron, Timezone, TimezoneHistory, ZoneHistory};

use crate::workflows::State;

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
    /// Canonical cron; `None` = no time is due.
    pub cron: Option<String>,
    /// IANA name; `None` = UTC.
    pub timezone: Option<String>,
    /// The workflow's state over the span.
    pub state: State,
    /// No time before this one is due.
    pub starts_at: Option<DateTime<Utc>>,
    /// No time at or after this one is due.
    pub ends_at: Option<DateTime<Utc>>,
}

/// A timezone or a cron that is not known any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown;

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
    /// Before `starts_at`, or not before `ends_at`.
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
        if self.starts_at.is_some_and(|start| time < start) || self.ends_at.is_some_and(|end| time >= end) {
            return DueCheck::OutsideWindow;
        }
        match self.parsed_at(time) {
            Ok(None) => DueCheck::NotDue,
            Ok(Some((cron, timezone))) if cron.matches(time, timezone) => DueCheck::Due,
            Ok(Some(_)) => DueCheck::NotDue,
            Err(Unknown) => DueCheck::Unjudged,
        }
    }

    /// Returns its cron and its timezone by the zone data that were in force at a time; `None` if it has no cron.
    ///
    /// # Errors
    /// Fails if one of them is no longer known.
    pub fn parsed_at(&self, time: DateTime<Utc>) -> Result<Option<(Cron, Timezone)>, Unknown> {
        let Some((cron, timezone)) = self.timing(&ZoneHistory::installed())? else { return Ok(None) };
        Ok(Some((cron, timezone.at(time).ok_or(Unknown)?)))
    }

    /// Returns its cron and its timezone's rules over time; `None` if it has no cron.
    ///
    /// # Errors
    /// Fails if one of them is no longer known.
    pub fn timing(&self, zones: &ZoneHistory) -> Result<Option<(Cron, TimezoneHistory)>, Unknown> {
        let Some(cron) = &self.cron else { return Ok(None) };
        let cron = Cron::parse(cron).map_err(|_| Unknown)?;
        let timezone = zones.find(self.timezone.as_deref().unwrap_or("UTC")).ok_or(Unknown)?;
        Ok(Some((cron, timezone)))
    }
}
