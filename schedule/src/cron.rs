//! A cron as sets of values; the app stores its canonical text.

use std::{fmt, str::FromStr};

use chrono::{DateTime, SecondsFormat, Utc};

use crate::{
    CronError, Timezone,
    bits::Bits,
    days::Days,
    describe,
    error::Code,
    field::{FIRST_YEAR, HOUR, LAST_YEAR, MONTH, YEAR},
    parse, text,
};

/// A cron: minutes, hours, days, months and years, without a timezone.
///
/// Two crons with the same sets are equal and have the same text. Different sets may still name the same times (`0#2`
/// and `8-14 * */7`): use [`Cron::has_same_times`].
///
/// ```
/// use schedule::Cron;
/// let cron = Cron::parse("0  9 * * mon-fri")?;
/// assert_eq!(cron.to_string(), "0 9 * * 1-5");
/// assert_eq!(cron, Cron::parse("cron(0 9 ? * MON-FRI *)")?);
/// # Ok::<(), schedule::CronError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cron {
    /// Bits 0 to 59.
    pub(crate) minutes: u64,
    /// Bits 0 to 23.
    pub(crate) hours: u64,
    pub(crate) days: Days,
    /// Bits 1 to 12.
    pub(crate) months: u64,
    /// Years since 1970.
    pub(crate) years: Bits,
}

impl Cron {
    /// Parses a cron: 5 fields, 6 with seconds first, 7 with the year last, a macro, or `cron(...)`.
    ///
    /// ```
    /// use schedule::Cron;
    /// assert_eq!(Cron::parse("@daily")?.to_string(), "0 0 * * *");
    /// assert_eq!(Cron::parse("0 30 6 L * ? 2030")?.to_string(), "0 30 6 L * * 2030");
    /// # Ok::<(), schedule::CronError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the field and the reason; see [`CronError::code`]. A cron that names no day of the years 1970 to 2199 is
    /// refused as `never_fires`.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        parse::cron(text)
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
    /// assert_eq!(error.to_string(), "it does not fire after 2026-03-29T07:00:00Z");
    /// # Ok::<(), schedule::CronError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns `never_fires` if there is no such time up to the year 2199.
    pub fn must_fire_after(&self, instant: DateTime<Utc>, tz: Timezone) -> Result<DateTime<Utc>, CronError> {
        self.next_after(instant, tz).ok_or_else(|| {
            let instant = instant.to_rfc3339_opts(SecondsFormat::Secs, true);
            CronError::whole(Code::NeverFires, format!("it does not fire after {instant}"))
        })
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

    /// Returns an English description of its times.
    ///
    /// ```
    /// let cron = schedule::Cron::parse("0 9 * * 1-5")?;
    /// assert_eq!(cron.describe(), "At 09:00, Monday to Friday");
    /// # Ok::<(), schedule::CronError>(())
    /// ```
    pub fn describe(&self) -> String {
        describe::sentence(self)
    }

    /// Whether every hour is named. Such a cron follows elapsed time, so it fires in both hours of a fold.
    pub(crate) fn has_open_hour(&self) -> bool {
        self.hours == HOUR.all().low()
    }

    pub(crate) fn has_open_months(&self) -> bool {
        self.months == MONTH.all().low()
    }

    pub(crate) fn has_open_years(&self) -> bool {
        self.years == YEAR.all()
    }
}

impl FromStr for Cron {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        Self::parse(text)
    }
}

/// The canonical text, which parses to the same cron.
impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write(self, f)
    }
}
