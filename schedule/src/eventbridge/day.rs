//! The two day fields for EventBridge, which accepts only one of them: candidates are compared on the calendar.

use crate::{
    Cron,
    bits::Bits,
    days::{Days, MonthDays, Rule, Shape, Weekdays},
    eventbridge::form::{Coverage, find_hull, list_forms, write_set},
    field::{FIRST_YEAR, LAST_YEAR, MONTH_DAY, WEEKDAYS},
};

/// A text for the two day fields.
pub(super) struct DayForm {
    pub(super) month_day: String,
    pub(super) weekday: String,
    /// How many days it has in the months of the cron.
    pub(super) count: u32,
    pub(super) coverage: Coverage,
}

/// The content of the two day fields: EventBridge accepts only one of them.
#[derive(Clone, Copy)]
enum Day {
    Dates(u32),
    Nearest(u32),
    LastDate,
    Weekdays(u8),
    Nth(u32, usize),
    Last(u32),
}

impl Day {
    /// The same as day fields of a cron, to be compared on the calendar.
    fn days(self) -> Days {
        let mut month_days = MonthDays::default();
        let mut weekdays = Weekdays::default();
        match self {
            Self::Dates(dates) => month_days.plain = dates,
            Self::Nearest(date) => month_days.nearest = 1 << date,
            Self::LastDate => month_days.last = true,
            Self::Weekdays(days) => weekdays.plain = days,
            Self::Nth(weekday, week) => weekdays.nth[week] = 1 << weekday,
            Self::Last(weekday) => weekdays.last = 1 << weekday,
        }
        Days { month_days, weekdays, rule: Rule::Either }
    }

    /// The texts for it, each with the days that the text names.
    fn texts(self) -> Vec<(String, Self)> {
        match self {
            Self::Dates(dates) => {
                let exact = (write_set(dates.into(), &MONTH_DAY), self);
                let wider = find_hull(dates.into());
                let wider = (write_set(wider, &MONTH_DAY), Self::Dates(wider.low_bits() as u32));
                vec![exact, wider]
            }
            Self::Nearest(date) => vec![(format!("{date}W"), self)],
            Self::LastDate => vec![("L".to_owned(), self)],
            Self::Weekdays(days) => vec![(weekday_names(days), self)],
            // Numbers, because AWS documents `3#2` and `6L`, and no names for them.
            Self::Nth(weekday, week) => vec![(format!("{}#{}", weekday + 1, week + 1), self)],
            Self::Last(weekday) => vec![(format!("{}L", weekday + 1), self)],
        }
    }

    /// Day-of-month and day-of-week, one of them `?`.
    fn form(self, text: String, count: u32, coverage: Coverage) -> DayForm {
        let (month_day, weekday) = match self {
            Self::Dates(_) | Self::Nearest(_) | Self::LastDate => (text, "?".to_owned()),
            Self::Weekdays(_) | Self::Nth(..) | Self::Last(_) => ("?".to_owned(), text),
        };
        DayForm { month_day, weekday, count, coverage }
    }
}

/// Returns every form of the day fields that contains all days of the cron.
pub(super) fn day_forms(cron: &Cron) -> Vec<DayForm> {
    if cron.days.is_plain() {
        return plain_forms(&cron.days);
    }
    let months = Months::of(cron);
    let wanted = months.days(&cron.days);
    candidates(&months, &cron.days)
        .into_iter()
        .filter(|day| months.contains(&day.days(), &cron.days))
        .flat_map(Day::texts)
        .map(|(text, day)| {
            let count = months.days(&day.days());
            let coverage = if count == wanted { Coverage::Exact } else { Coverage::Superset };
            day.form(text, count, coverage)
        })
        .collect()
}

/// One field is open and the other has only numbers, so no calendar is needed.
fn plain_forms(days: &Days) -> Vec<DayForm> {
    if !days.weekdays.are_open() {
        let day = Day::Weekdays(days.weekdays.plain);
        return vec![day.form(weekday_names(days.weekdays.plain), days.weekdays.plain.count_ones(), Coverage::Exact)];
    }
    let day = Day::Dates(days.month_days.plain);
    let forms = list_forms(days.month_days.plain.into(), &MONTH_DAY).into_iter();
    forms.map(|form| day.form(form.text, form.count, form.coverage)).collect()
}

/// Returns every day field that EventBridge can express and that may contain the cron's days; simple ones first.
fn candidates(months: &Months, days: &Days) -> Vec<Day> {
    let (dates, weekdays) = months.hulls(days);
    let by_date = [Day::Dates(dates), Day::Weekdays(weekdays)];
    // Of two that are equal on the calendar, the one closest to the original text comes first.
    let mut candidates = by_date.to_vec();
    if days.month_days.are_open() {
        candidates.reverse();
    }
    candidates.push(Day::LastDate);
    for weekday in 0..7 {
        candidates.extend((0..5).map(|week| Day::Nth(weekday, week)));
        candidates.push(Day::Last(weekday));
    }
    candidates.extend((1..=31).map(Day::Nearest));
    candidates
}

/// The months of a cron by shape: the calendar has only 28 shapes.
struct Months(Vec<(Shape, u32)>);

impl Months {
    fn of(cron: &Cron) -> Self {
        let mut shapes: Vec<(Shape, u32)> = Vec::with_capacity(28);
        for year in (FIRST_YEAR..=LAST_YEAR).filter(|year| cron.years.contains((year - FIRST_YEAR) as u32)) {
            for month in Bits::from(cron.months).iter() {
                let shape = Shape::of_month(year, month);
                match shapes.iter_mut().find(|(known, _)| *known == shape) {
                    Some((_, count)) => *count += 1,
                    None => shapes.push((shape, 1)),
                }
            }
        }
        Self(shapes)
    }

    /// How many days match, over all months.
    fn days(&self, days: &Days) -> u32 {
        self.0.iter().map(|(shape, count)| days.matching_days(*shape).count_ones() * count).sum()
    }

    fn contains(&self, outer: &Days, inner: &Days) -> bool {
        self.0.iter().all(|(shape, _)| inner.matching_days(*shape) & !outer.matching_days(*shape) == 0)
    }

    /// Every date and every weekday on which the days ever fall.
    fn hulls(&self, days: &Days) -> (u32, u8) {
        let mut dates = 0;
        let mut weekdays = 0;
        for (shape, _) in &self.0 {
            let mask = days.matching_days(*shape);
            dates |= mask;
            for date in Bits::from(mask).iter() {
                weekdays |= 1 << shape.weekday_of(date);
            }
        }
        (dates, weekdays)
    }
}

/// `MON-FRI`, or a list, because AWS is not known to accept a range that wraps around.
fn weekday_names(days: u8) -> String {
    let named: Vec<_> = Bits::from(u64::from(days)).iter().map(|weekday| WEEKDAYS[weekday as usize]).collect();
    let first = days.trailing_zeros();
    let is_run = days >> first == (1 << named.len()) - 1;
    match named.as_slice() {
        [from, _, .., to] if is_run => format!("{from}-{to}"),
        _ => named.join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest superset has the fewest days in 230 years, so each month counts as often as it occurs.
    #[test]
    fn days_are_counted_in_every_year() {
        for (text, days) in [("0 0 29 2 *", 56), ("0 0 L * *", 230 * 12), ("0 0 0 29 2 * 2024,2028,2032", 3)] {
            let cron = Cron::parse(text).expect("a cron");
            assert_eq!(Months::of(&cron).days(&cron.days), days, "{text}");
        }
    }
}
