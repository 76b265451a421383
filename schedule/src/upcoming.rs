//! The upcoming times as iterators, with the effects of offset changes.

use std::iter::FusedIterator;

use chrono::{DateTime, MappedLocalTime, Utc};

use crate::{
    Cron, Timezone,
    next::{Found, find_instants},
};

/// An upcoming time in a preview.
///
/// ```
/// use schedule::{Cron, Note};
/// let cron = Cron::parse("30 2 * * *")?;
/// let from = "2026-03-28T12:00:00Z".parse().unwrap();
/// let next = cron.upcoming_times(from, "Europe/Paris".parse().unwrap()).next().unwrap();
/// assert_eq!(next.local.to_rfc3339(), "2026-03-30T02:30:00+02:00");
/// assert_eq!(next.note, Some(Note::Gap));
/// # Ok::<(), schedule::CronError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upcoming {
    /// When it fires.
    pub utc: DateTime<Utc>,
    /// The same instant on the local calendar.
    pub local: DateTime<Timezone>,
    /// The effect of an offset change on it.
    pub note: Option<Note>,
}

/// The effect of an offset change on a time.
///
/// ```
/// use schedule::{Cron, Note};
/// let from = "2026-10-24T12:00:00Z".parse().unwrap();
/// let next = Cron::parse("30 2 * * *")?.upcoming_times(from, "Europe/Paris".parse().unwrap()).next().unwrap();
/// assert_eq!((next.utc.to_rfc3339().as_str(), next.note), ("2026-10-25T00:30:00+00:00", Some(Note::Fold)));
/// # Ok::<(), schedule::CronError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A time just before this one did not exist and was skipped.
    Gap,
    /// The local time comes twice.
    Fold,
}

impl Note {
    /// `gap` or `fold`.
    ///
    /// ```
    /// assert_eq!(schedule::Note::Fold.as_str(), "fold");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::Fold => "fold",
        }
    }
}

/// The times of a cron after an instant; returned by [`Cron::times_after`].
///
/// ```
/// let cron = schedule::Cron::parse("@hourly")?;
/// let times: schedule::Times = cron.times_after(chrono::DateTime::UNIX_EPOCH, schedule::Timezone::UTC);
/// assert_eq!(times.take(3).last().unwrap().timestamp(), 3 * 3600);
/// # Ok::<(), schedule::CronError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Times(Upcomings);

/// The times of a cron after an instant, with notes; returned by [`Cron::upcoming_times`].
///
/// ```
/// let cron = schedule::Cron::parse("@hourly")?;
/// let times: schedule::Upcomings = cron.upcoming_times(chrono::DateTime::UNIX_EPOCH, schedule::Timezone::UTC);
/// assert!(times.take(24).all(|time| time.note.is_none()));
/// # Ok::<(), schedule::CronError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Upcomings {
    cron: Cron,
    tz: Timezone,
    /// `None` after the last time.
    after: Option<DateTime<Utc>>,
}

impl Cron {
    /// All times strictly after `instant`, in ascending order.
    ///
    /// ```
    /// use schedule::Cron;
    /// let from = "2026-01-30T12:00:00Z".parse().unwrap();
    /// let days = Cron::parse("0 0 L * *")?.times_after(from, schedule::Timezone::UTC);
    /// let days: Vec<_> = days.take(2).map(|time| time.date_naive().to_string()).collect();
    /// assert_eq!(days, ["2026-01-31", "2026-02-28"]);
    /// # Ok::<(), schedule::CronError>(())
    /// ```
    pub fn times_after(&self, instant: DateTime<Utc>, tz: Timezone) -> Times {
        Times(self.upcoming_times(instant, tz))
    }

    /// All times strictly after `instant`, with the effects of offset changes.
    ///
    /// ```
    /// use schedule::{Cron, Note};
    /// let from = "2026-10-25T00:00:00Z".parse().unwrap();
    /// let cron = Cron::parse("30 * * * *")?;
    /// let notes = cron.upcoming_times(from, "Europe/Paris".parse().unwrap()).map(|time| time.note);
    /// assert_eq!(notes.take(3).collect::<Vec<_>>(), [Some(Note::Fold), Some(Note::Fold), None]);
    /// # Ok::<(), schedule::CronError>(())
    /// ```
    pub fn upcoming_times(&self, instant: DateTime<Utc>, tz: Timezone) -> Upcomings {
        Upcomings { cron: *self, tz, after: Some(instant) }
    }
}

impl Iterator for Upcomings {
    type Item = Upcoming;

    fn next(&mut self) -> Option<Upcoming> {
        let found = self.after.and_then(|after| self.cron.find_after(after, self.tz));
        self.after = found.map(|found| found.at);
        let Found { at: utc, skipped } = found?;
        let local = utc.with_timezone(&self.tz);
        let note = match find_instants(self.tz, local.naive_local()) {
            MappedLocalTime::Ambiguous(..) => Some(Note::Fold),
            _ => skipped.then_some(Note::Gap),
        };
        Some(Upcoming { utc, local, note })
    }
}

impl FusedIterator for Upcomings {}

impl Iterator for Times {
    type Item = DateTime<Utc>;

    fn next(&mut self) -> Option<DateTime<Utc>> {
        self.0.after = self.0.after.and_then(|after| self.0.cron.next_after(after, self.0.tz));
        self.0.after
    }
}

impl FusedIterator for Times {}
