//! The times of a cron in a timezone: bitsets on the local calendar, and the only implementation of the DST rule.
//!
//! A local time that the spring change skips does not fire. In the autumn fold a cron with a restricted hour fires at
//! the first instance only (EventBridge's documented rule for both). A cron with an open hour fires in the first
//! instance of the hour, then in the second.

use chrono::{
    DateTime, Datelike, MappedLocalTime, NaiveDate, NaiveDateTime, NaiveTime, SecondsFormat, TimeDelta, TimeZone, Utc,
};

use crate::{
    Cron, CronError, Timezone,
    error::Code,
    field::{FIRST_YEAR, LAST_YEAR},
};

/// The instants of a local time on the calendar of a timezone.
pub(crate) type Instants = MappedLocalTime<DateTime<Utc>>;

/// A time, and whether the search skipped a time in a gap.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) at: DateTime<Utc>,
    pub(crate) skipped: bool,
}

impl Cron {
    /// The first time strictly after `instant`; `None` if there is none up to the year 2199.
    ///
    /// ```
    /// use schedule::Cron;
    /// let after = "2026-03-28T08:00:00Z".parse().unwrap();
    /// let next = Cron::parse("0 9 * * *")?.next_after(after, "Europe/Paris".parse().unwrap());
    /// assert_eq!(next, Some("2026-03-29T07:00:00Z".parse().unwrap()));
    /// # Ok::<(), schedule::CronError>(())
    /// ```
    pub fn next_after(&self, instant: DateTime<Utc>, tz: Timezone) -> Option<DateTime<Utc>> {
        self.find_after(instant, tz).map(|found| found.at)
    }

    /// Returns the first time after `instant`, or an error if there is none.
    ///
    /// Parsing has no clock, so it refuses 30 February; this function refuses a past year.
    ///
    /// ```
    /// use schedule::{Cron, Timezone};
    /// let over = Cron::parse("0 30 9 31 12 * 2020")?;
    /// let error = over.must_fire_after("2026-03-29T07:00:00Z".parse().unwrap(), Timezone::UTC).unwrap_err();
    /// assert_eq!(error.code(), "never_fires");
    /// assert_eq!(error.to_string(), "the cron does not fire after 2026-03-29T07:00:00Z");
    /// # Ok::<(), schedule::CronError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns `never_fires` if there is no such time up to the year 2199.
    pub fn must_fire_after(&self, instant: DateTime<Utc>, tz: Timezone) -> Result<DateTime<Utc>, CronError> {
        self.next_after(instant, tz).ok_or_else(|| {
            let instant = instant.to_rfc3339_opts(SecondsFormat::Secs, true);
            CronError::of_whole_cron(Code::NeverFires, format!("the cron does not fire after {instant}"))
        })
    }

    /// Whether it fires at exactly `instant`, which must be a full minute.
    ///
    /// ```
    /// use schedule::Cron;
    /// let cron = Cron::parse("30 1 * * *")?;
    /// let new_york = "America/New_York".parse().unwrap();
    /// // In the autumn fold 01:30 comes twice; a cron with a fixed hour takes the first.
    /// assert!(cron.matches("2026-11-01T05:30:00Z".parse().unwrap(), new_york));
    /// assert!(!cron.matches("2026-11-01T06:30:00Z".parse().unwrap(), new_york));
    /// # Ok::<(), schedule::CronError>(())
    /// ```
    pub fn matches(&self, instant: DateTime<Utc>, tz: Timezone) -> bool {
        if !(FIRST_YEAR - 1..=LAST_YEAR + 1).contains(&instant.year()) {
            return false;
        }
        let local = instant.with_timezone(&tz).naive_local();
        if !self.names_time(local) {
            return false;
        }
        match find_instants(tz, local) {
            MappedLocalTime::Ambiguous(first, _) => self.has_open_hour() || instant == first,
            _ => true,
        }
    }

    pub(crate) fn find_after(&self, instant: DateTime<Utc>, tz: Timezone) -> Option<Found> {
        if instant.year() > LAST_YEAR + 1 {
            return None;
        }
        let instant = instant.max(new_year(FIRST_YEAR - 1));
        let local = instant.with_timezone(&tz).naive_local();
        let ahead = self.scan_after(local, instant, tz);
        match find_instants(tz, local) {
            MappedLocalTime::Ambiguous(first, second) if first == instant && self.has_open_hour() => {
                let again = self.second_pass_after(local, second - first, tz);
                let again = again.map(|at| Found { at, skipped: false });
                ahead.into_iter().chain(again).min_by_key(|found| found.at)
            }
            _ => ahead,
        }
    }

    /// Searches the local times after `local`, and returns the first whose instant is after `instant`.
    fn scan_after(&self, mut local: NaiveDateTime, instant: DateTime<Utc>, tz: Timezone) -> Option<Found> {
        let mut skipped = false;
        loop {
            local = self.local_after(local)?;
            match find_instants(tz, local) {
                MappedLocalTime::None => skipped = true,
                MappedLocalTime::Single(at) | MappedLocalTime::Ambiguous(at, _) if at > instant => {
                    return Some(Found { at, skipped });
                }
                MappedLocalTime::Ambiguous(_, at) if at > instant && self.has_open_hour() => {
                    return Some(Found { at, skipped });
                }
                _ => {}
            }
        }
    }

    /// In the first pass of a fold at `local`: returns the first time of the second pass that is not after `local`.
    fn second_pass_after(&self, local: NaiveDateTime, fold: TimeDelta, tz: Timezone) -> Option<DateTime<Utc>> {
        let mut candidate = local - fold;
        loop {
            candidate = self.local_after(candidate)?;
            if candidate > local {
                return None;
            }
            if let MappedLocalTime::Ambiguous(_, second) = find_instants(tz, candidate) {
                return Some(second);
            }
        }
    }
}

pub(crate) fn find_instants(tz: Timezone, local: NaiveDateTime) -> Instants {
    tz.from_local_datetime(&local).map(|time| time.to_utc())
}

fn new_year(year: i32) -> DateTime<Utc> {
    NaiveDate::from_yo_opt(year, 1).unwrap_or_default().and_time(NaiveTime::MIN).and_utc()
}
