//! The times of a cron in a timezone: bitsets on the local calendar, the DST rule written once.
//!
//! A local time that the spring change skips does not fire. In the autumn fold a cron with a
//! restricted hour fires at the first instance only (EventBridge's documented rule for both); a cron
//! with an open hour runs through the first instance of the hour, then through the second.

use std::iter::FusedIterator;

use chrono::{
    DateTime, Datelike, MappedLocalTime, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, TimeZone, Timelike, Utc,
};
use chrono_tz::Tz;

use crate::{
    Cron,
    bits::Bits,
    days::Shape,
    field::{FIRST_YEAR, LAST_YEAR},
};

const MINUTE: TimeDelta = TimeDelta::minutes(1);

/// A time to come, as a preview shows it.
///
/// ```
/// use schedule::{Cron, Note};
/// let cron = Cron::parse("30 2 * * *")?;
/// let from = "2026-03-28T12:00:00Z".parse().unwrap();
/// let next = cron.upcoming(from, chrono_tz::Europe::Paris).next().unwrap();
/// assert_eq!(next.local.to_rfc3339(), "2026-03-30T02:30:00+02:00");
/// assert_eq!(next.note, Some(Note::Gap));
/// # Ok::<(), schedule::CronError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upcoming {
    /// When it fires.
    pub utc: DateTime<Utc>,
    /// The same instant on the local calendar.
    pub local: DateTime<Tz>,
    /// What a change of the clocks did to it.
    pub note: Option<Note>,
}

/// What a change of the clocks did to a time.
///
/// ```
/// use schedule::{Cron, Note};
/// let from = "2026-10-24T12:00:00Z".parse().unwrap();
/// let next = Cron::parse("30 2 * * *")?.upcoming(from, chrono_tz::Europe::Paris).next().unwrap();
/// assert_eq!((next.utc.to_rfc3339().as_str(), next.note), ("2026-10-25T00:30:00+00:00", Some(Note::Fold)));
/// # Ok::<(), schedule::CronError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// Just before this time, one that the cron names did not exist and was skipped.
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

/// The times of a cron after an instant; made by [`Cron::times_after`].
///
/// ```
/// let cron = schedule::Cron::parse("@hourly")?;
/// let times: schedule::Times = cron.times_after(chrono::DateTime::UNIX_EPOCH, schedule::Tz::UTC);
/// assert_eq!(times.take(3).last().unwrap().timestamp(), 3 * 3600);
/// # Ok::<(), schedule::CronError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Times(Upcomings);

/// The times of a cron after an instant, with notes; made by [`Cron::upcoming`].
///
/// ```
/// let cron = schedule::Cron::parse("@hourly")?;
/// let times: schedule::Upcomings = cron.upcoming(chrono::DateTime::UNIX_EPOCH, schedule::Tz::UTC);
/// assert!(times.take(24).all(|time| time.note.is_none()));
/// # Ok::<(), schedule::CronError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Upcomings {
    cron: Cron,
    tz: Tz,
    /// `None` once no time is left.
    after: Option<DateTime<Utc>>,
}

/// What the local calendar makes of a wall-clock time, as instants.
type Instants = MappedLocalTime<DateTime<Utc>>;

/// A time found, and whether a time in a gap was passed over on the way.
#[derive(Clone, Copy)]
struct Found {
    at: DateTime<Utc>,
    skipped: bool,
}

impl Cron {
    /// The first time strictly after `instant`; `None` when there is none up to the year 2199.
    ///
    /// ```
    /// use schedule::Cron;
    /// let after = "2026-03-28T08:00:00Z".parse().unwrap();
    /// let next = Cron::parse("0 9 * * *")?.next_after(after, chrono_tz::Europe::Paris);
    /// assert_eq!(next, Some("2026-03-29T07:00:00Z".parse().unwrap()));
    /// # Ok::<(), schedule::CronError>(())
    /// ```
    pub fn next_after(&self, instant: DateTime<Utc>, tz: Tz) -> Option<DateTime<Utc>> {
        self.find_after(instant, tz).map(|found| found.at)
    }

    /// The last time strictly before `instant`; `None` when there is none since 1970.
    ///
    /// ```
    /// use schedule::Cron;
    /// let before = "2026-03-29T07:00:00Z".parse().unwrap();
    /// let previous = Cron::parse("0 9 * * *")?.prev_before(before, chrono_tz::Europe::Paris);
    /// assert_eq!(previous, Some("2026-03-28T08:00:00Z".parse().unwrap()));
    /// # Ok::<(), schedule::CronError>(())
    /// ```
    pub fn prev_before(&self, instant: DateTime<Utc>, tz: Tz) -> Option<DateTime<Utc>> {
        if instant.year() < FIRST_YEAR - 1 {
            return None;
        }
        let instant = instant.min(new_year(LAST_YEAR + 2));
        let local = instant.with_timezone(&tz).naive_local();
        match instants(tz, local) {
            MappedLocalTime::Ambiguous(first, second) if second == instant => {
                let fold = second - first;
                if self.has_open_hour() {
                    self.scan_before(local, instant, tz).max(self.first_pass_before(local, fold, tz))
                } else {
                    self.scan_before(local + fold, instant, tz)
                }
            }
            _ => self.scan_before(local, instant, tz),
        }
    }

    /// All times strictly after `instant`, in ascending order.
    ///
    /// ```
    /// use schedule::Cron;
    /// let from = "2026-01-30T12:00:00Z".parse().unwrap();
    /// let days = Cron::parse("0 0 L * *")?.times_after(from, schedule::Tz::UTC);
    /// let days: Vec<_> = days.take(2).map(|time| time.date_naive().to_string()).collect();
    /// assert_eq!(days, ["2026-01-31", "2026-02-28"]);
    /// # Ok::<(), schedule::CronError>(())
    /// ```
    pub fn times_after(&self, instant: DateTime<Utc>, tz: Tz) -> Times {
        Times(self.upcoming(instant, tz))
    }

    /// All times strictly after `instant`, with what a change of the clocks does to them.
    ///
    /// ```
    /// use schedule::{Cron, Note};
    /// let from = "2026-10-25T00:00:00Z".parse().unwrap();
    /// let notes = Cron::parse("30 * * * *")?.upcoming(from, chrono_tz::Europe::Paris).map(|time| time.note);
    /// assert_eq!(notes.take(3).collect::<Vec<_>>(), [Some(Note::Fold), Some(Note::Fold), None]);
    /// # Ok::<(), schedule::CronError>(())
    /// ```
    pub fn upcoming(&self, instant: DateTime<Utc>, tz: Tz) -> Upcomings {
        Upcomings { cron: *self, tz, after: Some(instant) }
    }

    /// Whether it fires at exactly `instant`, which is a whole minute.
    ///
    /// ```
    /// use schedule::Cron;
    /// let cron = Cron::parse("30 1 * * *")?;
    /// let new_york = chrono_tz::America::New_York;
    /// // In the autumn fold 01:30 comes twice; a cron with a fixed hour takes the first.
    /// assert!(cron.matches("2026-11-01T05:30:00Z".parse().unwrap(), new_york));
    /// assert!(!cron.matches("2026-11-01T06:30:00Z".parse().unwrap(), new_york));
    /// # Ok::<(), schedule::CronError>(())
    /// ```
    pub fn matches(&self, instant: DateTime<Utc>, tz: Tz) -> bool {
        if !(FIRST_YEAR - 1..=LAST_YEAR + 1).contains(&instant.year()) {
            return false;
        }
        let local = instant.with_timezone(&tz).naive_local();
        if !self.names(local) {
            return false;
        }
        match instants(tz, local) {
            MappedLocalTime::Ambiguous(first, _) => self.has_open_hour() || instant == first,
            _ => true,
        }
    }

    fn find_after(&self, instant: DateTime<Utc>, tz: Tz) -> Option<Found> {
        if instant.year() > LAST_YEAR + 1 {
            return None;
        }
        let instant = instant.max(new_year(FIRST_YEAR - 1));
        let local = instant.with_timezone(&tz).naive_local();
        let ahead = self.scan_after(local, instant, tz);
        match instants(tz, local) {
            MappedLocalTime::Ambiguous(first, second) if first == instant && self.has_open_hour() => {
                match (ahead, self.second_pass_after(local, second - first, tz)) {
                    (Some(ahead), Some(again)) if again < ahead.at => Some(Found { at: again, skipped: false }),
                    (None, Some(again)) => Some(Found { at: again, skipped: false }),
                    (ahead, _) => ahead,
                }
            }
            _ => ahead,
        }
    }

    /// Walks the local times after `local`, and takes the first that is an instant after `instant`.
    fn scan_after(&self, mut local: NaiveDateTime, instant: DateTime<Utc>, tz: Tz) -> Option<Found> {
        let mut skipped = false;
        loop {
            local = self.local_after(local)?;
            match instants(tz, local) {
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

    /// Walks the local times before `local`, and takes the first that is an instant before `instant`.
    fn scan_before(&self, mut local: NaiveDateTime, instant: DateTime<Utc>, tz: Tz) -> Option<DateTime<Utc>> {
        loop {
            local = self.local_before(local)?;
            match instants(tz, local) {
                MappedLocalTime::Ambiguous(_, at) if at < instant && self.has_open_hour() => return Some(at),
                MappedLocalTime::Single(at) | MappedLocalTime::Ambiguous(at, _) if at < instant => return Some(at),
                _ => {}
            }
        }
    }

    /// In the first pass of a fold at `local`: the first time of the second pass up to `local` again.
    fn second_pass_after(&self, local: NaiveDateTime, fold: TimeDelta, tz: Tz) -> Option<DateTime<Utc>> {
        let mut candidate = local - fold;
        loop {
            candidate = self.local_after(candidate)?;
            if candidate > local {
                return None;
            }
            if let MappedLocalTime::Ambiguous(_, second) = instants(tz, candidate) {
                return Some(second);
            }
        }
    }

    /// In the second pass of a fold at `local`: the last time of the first pass down to `local` again.
    fn first_pass_before(&self, local: NaiveDateTime, fold: TimeDelta, tz: Tz) -> Option<DateTime<Utc>> {
        let mut candidate = local + fold;
        loop {
            candidate = self.local_before(candidate)?;
            if candidate < local {
                return None;
            }
            if let MappedLocalTime::Ambiguous(first, _) = instants(tz, candidate) {
                return Some(first);
            }
        }
    }

    /// Whether any month of any year has a day that matches.
    pub(crate) fn has_a_day(&self) -> bool {
        self.date_after(NaiveDate::from_ymd_opt(FIRST_YEAR - 1, 12, 31).unwrap_or_default()).is_some()
    }

    /// Whether the local time is one that the fields name.
    fn names(&self, local: NaiveDateTime) -> bool {
        local.second() == 0
            && local.nanosecond() == 0
            && self.minutes & (1 << local.minute()) != 0
            && self.hours & (1 << local.hour()) != 0
            && self.names_day(local.date())
    }

    fn names_day(&self, date: NaiveDate) -> bool {
        self.days_of(date.year(), date.month()) & (1 << date.day()) != 0
    }

    /// The days named in a month, as bits 1 to 31.
    fn days_of(&self, year: i32, month: u32) -> u32 {
        let year_is_named = u32::try_from(year - FIRST_YEAR).is_ok_and(|index| self.years.contains(index));
        if year_is_named && self.months & (1 << month) != 0 { self.days.mask(Shape::of(year, month)) } else { 0 }
    }

    /// The first named local time after `local`, whether or not it exists in a timezone.
    fn local_after(&self, local: NaiveDateTime) -> Option<NaiveDateTime> {
        let from = start_of_minute(local) + MINUTE;
        let (minutes, hours) = (Bits::from(self.minutes), Bits::from(self.hours));
        if self.names_day(from.date()) {
            if self.hours & (1 << from.hour()) != 0
                && let Some(minute) = minutes.first_from(from.minute())
            {
                return at(from.date(), from.hour(), minute);
            }
            if let Some(hour) = hours.first_from(from.hour() + 1) {
                return at(from.date(), hour, minutes.first_from(0)?);
            }
        }
        at(self.date_after(from.date())?, hours.first_from(0)?, minutes.first_from(0)?)
    }

    /// The last named local time before `local`, whether or not it exists in a timezone.
    fn local_before(&self, local: NaiveDateTime) -> Option<NaiveDateTime> {
        let floor = start_of_minute(local);
        let to = if floor < local { floor } else { floor - MINUTE };
        let (minutes, hours) = (Bits::from(self.minutes), Bits::from(self.hours));
        if self.names_day(to.date()) {
            if self.hours & (1 << to.hour()) != 0
                && let Some(minute) = minutes.last_to(to.minute())
            {
                return at(to.date(), to.hour(), minute);
            }
            if let Some(hour) = to.hour().checked_sub(1).and_then(|hour| hours.last_to(hour)) {
                return at(to.date(), hour, minutes.last_to(59)?);
            }
        }
        at(self.date_before(to.date())?, hours.last_to(23)?, minutes.last_to(59)?)
    }

    fn date_after(&self, date: NaiveDate) -> Option<NaiveDate> {
        let (mut year, mut month) = (date.year(), date.month());
        let mut later_days = u32::MAX.checked_shl(date.day() + 1).unwrap_or(0);
        while year <= LAST_YEAR {
            let days = self.days_of(year, month) & later_days;
            if days != 0 {
                return NaiveDate::from_ymd_opt(year, month, days.trailing_zeros());
            }
            later_days = u32::MAX;
            (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        }
        None
    }

    fn date_before(&self, date: NaiveDate) -> Option<NaiveDate> {
        let (mut year, mut month) = (date.year(), date.month());
        let mut earlier_days = (1 << date.day()) - 1;
        while year >= FIRST_YEAR {
            let days = self.days_of(year, month) & earlier_days;
            if days != 0 {
                return NaiveDate::from_ymd_opt(year, month, days.ilog2());
            }
            earlier_days = u32::MAX;
            (year, month) = if month == 1 { (year - 1, 12) } else { (year, month - 1) };
        }
        None
    }
}

impl Iterator for Upcomings {
    type Item = Upcoming;

    fn next(&mut self) -> Option<Upcoming> {
        let found = self.after.and_then(|after| self.cron.find_after(after, self.tz));
        self.after = found.map(|found| found.at);
        let Found { at: utc, skipped } = found?;
        let local = utc.with_timezone(&self.tz);
        let note = match instants(self.tz, local.naive_local()) {
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

fn instants(tz: Tz, local: NaiveDateTime) -> Instants {
    tz.from_local_datetime(&local).map(|time| time.to_utc())
}

fn start_of_minute(local: NaiveDateTime) -> NaiveDateTime {
    local - TimeDelta::seconds(i64::from(local.second())) - TimeDelta::nanoseconds(i64::from(local.nanosecond()))
}

fn at(date: NaiveDate, hour: u32, minute: u32) -> Option<NaiveDateTime> {
    Some(date.and_time(NaiveTime::from_hms_opt(hour, minute, 0)?))
}

fn new_year(year: i32) -> DateTime<Utc> {
    NaiveDate::from_yo_opt(year, 1).unwrap_or_default().and_time(NaiveTime::MIN).and_utc()
}
