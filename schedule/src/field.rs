//! The fields of a cron: their names, limits and value names.

use crate::bits::Bits;

/// The first year that EventBridge can name.
pub(crate) const FIRST_YEAR: i32 = 1970;
/// The last year that EventBridge can name.
pub(crate) const LAST_YEAR: i32 = 2199;

const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
pub(crate) const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// One field: its name and its values.
#[derive(Debug)]
pub(crate) struct Field {
    /// The name in messages.
    pub(crate) name: &'static str,
    pub(crate) min: u32,
    pub(crate) max: u32,
    /// The last value of `*` and of an open step; it differs from `max` if Sunday is 0 and 7.
    pub(crate) last: u32,
    /// Names of values; the first is `min`.
    pub(crate) words: &'static [&'static str],
    pub(crate) kind: Kind,
}

/// What a field accepts beyond numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    /// `?`, `L`, `LW`, `15W`.
    MonthDay,
    /// `?`, `5L`, `5#2`.
    Weekday,
    /// Years, counted from 1970, so that a set of years fits in few bits.
    Year,
}

pub(crate) const SECOND: Field = plain("second", 0, 59);
pub(crate) const MINUTE: Field = plain("minute", 0, 59);
pub(crate) const HOUR: Field = plain("hour", 0, 23);
pub(crate) const MONTH_DAY: Field = Field { kind: Kind::MonthDay, ..plain("day-of-month", 1, 31) };
pub(crate) const MONTH: Field = Field { words: &MONTHS, ..plain("month", 1, 12) };
pub(crate) const YEAR: Field = Field { kind: Kind::Year, ..plain("year", FIRST_YEAR as u32, LAST_YEAR as u32) };
/// Weekdays as cron counts them: 0 to 6 from Sunday, and 7 is Sunday again.
pub(crate) const WEEKDAY: Field =
    Field { last: 6, words: &WEEKDAYS, kind: Kind::Weekday, ..plain("day-of-week", 0, 7) };
/// Weekdays as EventBridge counts them: 1 to 7 from Sunday.
pub(crate) const EVENTBRIDGE_WEEKDAY: Field =
    Field { words: &WEEKDAYS, kind: Kind::Weekday, ..plain("day-of-week", 1, 7) };

const fn plain(name: &'static str, min: u32, max: u32) -> Field {
    Field { name, min, max, last: max, words: &[], kind: Kind::Plain }
}

impl Field {
    /// The bit of a value: weekdays count from Sunday as 0, years from 1970.
    pub(crate) fn bit_of(&self, value: u32) -> u32 {
        match self.kind {
            Kind::Weekday => (value - self.min) % 7,
            Kind::Year => value - self.min,
            Kind::Plain | Kind::MonthDay => value,
        }
    }

    /// The value of a bit, with Sunday as the smallest weekday.
    pub(crate) fn value_of(&self, bit: u32) -> u32 {
        match self.kind {
            Kind::Weekday | Kind::Year => bit + self.min,
            Kind::Plain | Kind::MonthDay => bit,
        }
    }

    /// Every value, as bits.
    pub(crate) fn all_values(&self) -> Bits {
        Bits::from_range(self.bit_of(self.min), self.bit_of(self.last))
    }
}
