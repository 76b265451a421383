//! The two day fields together: which days of a month they name.

use chrono::{Datelike, NaiveDate};

/// Day-of-month and day-of-week, and how they combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Days {
    pub(crate) month_days: MonthDays,
    pub(crate) weekdays: Weekdays,
    pub(crate) rule: Rule,
}

/// Vixie's rule for the two day fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    /// One field begins with `*` (so `*/2` too): both must match.
    Both,
    /// Neither field begins with `*`: one match is enough.
    Either,
}

/// The day-of-month field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct MonthDays {
    /// Bits 1 to 31.
    pub(crate) plain: u32,
    /// `15W`: the weekday (Monday to Friday) nearest the day, in the same month. Bits 1 to 31.
    pub(crate) nearest: u32,
    /// `L`.
    pub(crate) last: bool,
    /// `LW`: the last weekday (Monday to Friday).
    pub(crate) last_weekday: bool,
}

/// The day-of-week field; bit 0 is Sunday.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Weekdays {
    /// Bits 0 to 6.
    pub(crate) plain: u8,
    /// `5L`: the last of this weekday in the month.
    pub(crate) last: u8,
    /// `5#2`: the second of this weekday, at index 1.
    pub(crate) nth: [u8; 5],
}

/// The length of a month and the weekday of its first day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// 28 to 31.
    pub(crate) length: u32,
    /// 0 is Sunday.
    pub(crate) first_weekday: u32,
}

impl Shape {
    /// The shape of a month of the years 1970 to 2199.
    pub(crate) fn of_month(year: i32, month: u32) -> Self {
        let first = NaiveDate::from_ymd_opt(year, month, 1).unwrap_or_default();
        Self { length: u32::from(first.num_days_in_month()), first_weekday: first.weekday().num_days_from_sunday() }
    }

    /// Every day of the month, as bits 1 to 31.
    pub(crate) fn all_days(self) -> u32 {
        (u32::MAX >> (31 - self.length)) & !1
    }

    /// 0 is Sunday.
    pub(crate) fn weekday_of(self, day: u32) -> u32 {
        (self.first_weekday + day - 1) % 7
    }

    /// The last day of the month that is a `weekday`.
    fn last(self, weekday: u32) -> u32 {
        self.length - (self.weekday_of(self.length) + 7 - weekday) % 7
    }

    /// The first day of the month that is a `weekday`.
    fn first(self, weekday: u32) -> u32 {
        1 + (weekday + 7 - self.first_weekday) % 7
    }

    /// The weekday (Monday to Friday) nearest `day` without leaving the month.
    fn nearest_weekday(self, day: u32) -> u32 {
        match self.weekday_of(day) {
            6 if day == 1 => 3,
            6 => day - 1,
            0 if day == self.length => day - 2,
            0 => day + 1,
            _ => day,
        }
    }
}

impl Days {
    /// The days of a month that match, as bits 1 to 31.
    pub(crate) fn matching_days(&self, shape: Shape) -> u32 {
        let (by_date, by_weekday) = (self.month_days.mask(shape), self.weekdays.mask(shape));
        match self.rule {
            Rule::Both => by_date & by_weekday,
            Rule::Either => by_date | by_weekday,
        }
    }

    /// Whether every day of every month matches.
    pub(crate) fn are_open(&self) -> bool {
        self.month_days.are_open() && self.weekdays.are_open()
    }

    /// Whether one field is open and the other has only numbers.
    pub(crate) fn is_plain(&self) -> bool {
        let dates = self.month_days == MonthDays { plain: self.month_days.plain, ..MonthDays::default() };
        let weekdays = self.weekdays == Weekdays { plain: self.weekdays.plain, ..Weekdays::default() };
        dates && weekdays && (self.month_days.are_open() || self.weekdays.are_open())
    }

    /// The same days in the shortest form, so that crons with the same meaning are equal.
    pub(crate) fn into_normal_form(self) -> Self {
        let (month_days, weekdays) = (self.month_days.normalised(), self.weekdays.normalised());
        let one_is_open = month_days.are_open() || weekdays.are_open();
        match self.rule {
            Rule::Either if one_is_open => {
                Self { month_days: MonthDays::OPEN, weekdays: Weekdays::OPEN, rule: Rule::Both }
            }
            rule => Self { month_days, weekdays, rule },
        }
    }
}

impl MonthDays {
    pub(crate) const OPEN: Self = Self { plain: !1, nearest: 0, last: false, last_weekday: false };

    pub(crate) fn are_open(&self) -> bool {
        self.plain == Self::OPEN.plain
    }

    fn normalised(self) -> Self {
        if self.are_open() { Self::OPEN } else { self }
    }

    fn mask(&self, shape: Shape) -> u32 {
        let mut mask = self.plain;
        if self.last {
            mask |= 1 << shape.length;
        }
        if self.last_weekday {
            mask |= 1 << shape.nearest_weekday(shape.length);
        }
        let mut nearest = self.nearest & shape.all_days();
        while nearest != 0 {
            mask |= 1 << shape.nearest_weekday(nearest.trailing_zeros());
            nearest &= nearest - 1;
        }
        mask & shape.all_days()
    }
}

impl Weekdays {
    pub(crate) const OPEN: Self = Self { plain: 0x7f, last: 0, nth: [0; 5] };

    pub(crate) fn are_open(&self) -> bool {
        self.plain == Self::OPEN.plain
    }

    /// Drops what a weekday without a suffix already covers; all five of a weekday become the weekday itself.
    fn normalised(self) -> Self {
        let plain = self.plain | self.nth.iter().fold(0x7f, |all, nth| all & nth);
        Self { plain, last: self.last & !plain, nth: self.nth.map(|nth| nth & !plain) }
    }

    fn mask(&self, shape: Shape) -> u32 {
        let mut mask = 0;
        for weekday in 0..7 {
            let first = shape.first(weekday);
            if self.plain & (1 << weekday) != 0 {
                // Sets every seventh bit from bit 0.
                mask |= 0x1020_4081 << first;
            }
            if self.last & (1 << weekday) != 0 {
                mask |= 1 << shape.last(weekday);
            }
            for (weeks, nth) in (0..).zip(self.nth) {
                if nth & (1 << weekday) != 0 {
                    mask |= 1_u32.checked_shl(first + 7 * weeks).unwrap_or(0);
                }
            }
        }
        mask & shape.all_days()
    }
}
