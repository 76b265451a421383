//! A cron as sets of values; the app stores its canonical text.
//!
//! `parse` reads it, `text` and `describe` write it, `calendar` and `next` search its times.

use crate::{
    bits::Bits,
    days::Days,
    field::{HOUR, MONTH, YEAR},
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
    /// How many times it fires in an hour in which it fires, 1 to 60.
    #[must_use]
    pub fn fires_per_hour(&self) -> u32 {
        self.minutes.count_ones()
    }

    /// Whether every hour is named. Such a cron follows elapsed time, so it fires in both hours of a fold.
    pub(crate) fn has_open_hour(&self) -> bool {
        self.hours == HOUR.all_values().low_bits()
    }

    pub(crate) fn has_open_months(&self) -> bool {
        self.months == MONTH.all_values().low_bits()
    }

    pub(crate) fn has_open_years(&self) -> bool {
        self.years == YEAR.all_values()
    }
}
