//! The local times that a cron names, by bitsets on the calendar; no timezone here.

use chrono::{Datelike, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike};

use crate::{
    Cron,
    bits::Bits,
    days::Shape,
    field::{FIRST_YEAR, LAST_YEAR},
};

const MINUTE: TimeDelta = TimeDelta::minutes(1);

impl Cron {
    /// Whether any month of any year has a day that matches.
    pub(crate) fn has_a_day(&self) -> bool {
        self.date_after(NaiveDate::from_ymd_opt(FIRST_YEAR - 1, 12, 31).unwrap_or_default()).is_some()
    }

    /// Whether both fire at the same times in every timezone, even if their texts differ.
    ///
    /// ```
    /// use schedule::Cron;
    /// let second_sunday = Cron::parse("0 9 * * 0#2")?;
    /// assert!(second_sunday.has_same_times(&Cron::parse("0 9 8-14 * */7")?));
    /// assert!(!second_sunday.has_same_times(&Cron::parse("0 9 * * 0#1")?));
    /// # Ok::<(), schedule::CronError>(())
    /// ```
    #[must_use]
    pub fn has_same_times(&self, other: &Self) -> bool {
        self == other
            || (self.minutes, self.hours) == (other.minutes, other.hours)
                && (FIRST_YEAR..=LAST_YEAR)
                    .all(|year| (1..=12).all(|month| self.days_of(year, month) == other.days_of(year, month)))
    }

    /// Whether the fields name this local time.
    pub(crate) fn names_time(&self, local: NaiveDateTime) -> bool {
        local.second() == 0
            && local.nanosecond() == 0
            && self.minutes & (1 << local.minute()) != 0
            && self.hours & (1 << local.hour()) != 0
            && self.names_day(local.date())
    }

    /// Whether the fields name this day.
    pub(crate) fn names_day(&self, date: NaiveDate) -> bool {
        self.days_of(date.year(), date.month()) & (1 << date.day()) != 0
    }

    /// The days named in a month, as bits 1 to 31.
    pub(crate) fn days_of(&self, year: i32, month: u32) -> u32 {
        let year_is_named = u32::try_from(year - FIRST_YEAR).is_ok_and(|index| self.years.contains(index));
        if year_is_named && self.months & (1 << month) != 0 {
            self.days.matching_days(Shape::of_month(year, month))
        } else {
            0
        }
    }

    /// The first named local time after `local`, whether or not it exists in a timezone.
    pub(crate) fn local_after(&self, local: NaiveDateTime) -> Option<NaiveDateTime> {
        // Its seconds do not matter: only its date, hour and minute are read.
        let from = local + MINUTE;
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
}

fn at(date: NaiveDate, hour: u32, minute: u32) -> Option<NaiveDateTime> {
    Some(date.and_time(NaiveTime::from_hms_opt(hour, minute, 0)?))
}
