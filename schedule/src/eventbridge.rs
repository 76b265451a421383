//! Step 4 of 7: a cron as the one expression that EventBridge Scheduler gets.
//!
//! Exact where EventBridge can say it, else the smallest superset; `:invoke` refuses the surplus.
//! Only grammar that AWS is known to accept: six fields, `?` in exactly one day field, weekday names,
//! no wrap-around range, single values, one range, one step, or a list of plain numbers.

use chrono::{DateTime, Offset, TimeDelta, TimeZone};
use chrono_tz::Tz;

use crate::{
    Cron,
    bits::Bits,
    days::{Days, MonthDays, Rule, Shape, Weekdays},
    field::{FIRST_YEAR, Field, HOUR, LAST_YEAR, MINUTE, MONTH, MONTH_DAY, WEEKDAYS, YEAR},
};

/// EventBridge's limit, `cron()` included.
const MAX_LENGTH: usize = 256;

/// What is published in EventBridge for a cron; made by [`compile`].
///
/// ```
/// use schedule::{Coverage, Cron, compile};
/// let compiled = compile(&Cron::parse("0 9 * * 1-5")?, chrono_tz::Europe::Paris);
/// assert_eq!(compiled.expression, "cron(0 9 ? * MON-FRI *)");
/// assert_eq!((compiled.timezone, compiled.coverage), (chrono_tz::Europe::Paris, Coverage::Exact));
/// # Ok::<(), schedule::CronError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// `cron(...)`, at most 256 characters.
    pub expression: String,
    /// The zone it is published in: the schedule's own, or UTC for a cron that is open by the hour.
    pub timezone: Tz,
    /// Whether it fires at times that the cron does not name.
    pub coverage: Coverage,
}

/// Whether an expression fires at times that the cron does not name.
///
/// ```
/// use schedule::{Coverage, Cron, compile};
/// let either_day = Cron::parse("0 9 13 * 5")?;
/// assert_eq!(compile(&either_day, schedule::Tz::UTC).coverage, Coverage::Superset);
/// assert_eq!(Coverage::Superset.as_str(), "superset");
/// # Ok::<(), schedule::CronError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// The same times.
    Exact,
    /// More times; the surplus is refused as `not_due`.
    Superset,
}

impl Coverage {
    /// `exact` or `superset`.
    ///
    /// ```
    /// assert_eq!(schedule::Coverage::Exact.as_str(), "exact");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Superset => "superset",
        }
    }
}

/// The one EventBridge expression for a cron in a timezone.
///
/// ```
/// use schedule::{Cron, compile};
/// let every_five = compile(&Cron::parse("*/5 * * * *")?, chrono_tz::America::New_York);
/// assert_eq!(every_five.expression, "cron(0/5 * * * ? *)");
/// // Open by the hour: the same instants in UTC, where no hour is lost or doubled.
/// assert_eq!(every_five.timezone, chrono_tz::UTC);
/// # Ok::<(), schedule::CronError>(())
/// ```
pub fn compile(cron: &Cron, tz: Tz) -> Compiled {
    let (day, days_are_exact) = day(cron);
    let choices = [
        forms(cron.minutes.into(), &MINUTE),
        forms(cron.hours.into(), &HOUR),
        day.forms(),
        forms(cron.months.into(), &MONTH),
        forms(cron.years, &YEAR),
    ];
    let (expression, fields_are_exact) = shortest_fit(&choices, &day);
    let coverage = if days_are_exact && fields_are_exact { Coverage::Exact } else { Coverage::Superset };
    let is_open = cron.has_open_hour() && cron.days.are_open() && cron.has_open_months() && cron.has_open_years();
    let timezone = if is_open && has_whole_hours(tz) { Tz::UTC } else { tz };
    Compiled { expression, timezone, coverage }
}

/// A way to write a field, and how many values it has.
struct Form {
    text: String,
    count: u32,
}

/// What stands in the two day fields: EventBridge takes only one of them.
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
    /// The same as our own day fields, to be compared on the calendar.
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

    fn forms(self) -> Vec<Form> {
        let one = |text: String| vec![Form { text, count: 1 }];
        match self {
            Self::Dates(dates) => forms(dates.into(), &MONTH_DAY),
            Self::Nearest(date) => one(format!("{date}W")),
            Self::LastDate => one("L".to_owned()),
            Self::Weekdays(days) => one(weekday_names(days)),
            // Numbers here: AWS documents `3#2` and `6L`, and no names with them.
            Self::Nth(weekday, week) => one(format!("{}#{}", weekday + 1, week + 1)),
            Self::Last(weekday) => one(format!("{}L", weekday + 1)),
        }
    }

    /// Day-of-month and day-of-week, one of them `?`.
    fn fields(self, text: &str) -> (&str, &str) {
        match self {
            Self::Dates(_) | Self::Nearest(_) | Self::LastDate => (text, "?"),
            Self::Weekdays(_) | Self::Nth(..) | Self::Last(_) => ("?", text),
        }
    }
}

/// The smallest day field that has all days of the cron, and whether it has no other.
fn day(cron: &Cron) -> (Day, bool) {
    let Days { month_days, weekdays, rule } = cron.days;
    let only_plain_dates = month_days == MonthDays { plain: month_days.plain, ..MonthDays::default() };
    let only_plain_weekdays = weekdays == Weekdays { plain: weekdays.plain, ..Weekdays::default() };
    if rule == Rule::Both && weekdays.are_open() && only_plain_dates {
        return (Day::Dates(month_days.plain), true);
    }
    if rule == Rule::Both && month_days.are_open() && only_plain_weekdays {
        return (Day::Weekdays(weekdays.plain), true);
    }
    let months = Months::of(cron);
    let wanted = months.days(&cron.days);
    let smallest = candidates(&months, &cron.days)
        .filter(|day| months.contains(&day.days(), &cron.days))
        .min_by_key(|day| months.days(&day.days()))
        .unwrap_or(Day::Dates(MonthDays::OPEN.plain));
    (smallest, months.days(&smallest.days()) == wanted)
}

/// Every day field that EventBridge can say and that could hold the cron's days.
fn candidates(months: &Months, days: &Days) -> impl Iterator<Item = Day> {
    let (dates, weekdays) = months.hulls(days);
    let plain = [Day::Dates(dates), Day::Weekdays(weekdays)].into_iter();
    let nearest = (1..=31).map(Day::Nearest);
    let of_weekday = (0..7)
        .flat_map(|weekday| (0..5).map(move |week| Day::Nth(weekday, week)).chain(std::iter::once(Day::Last(weekday))));
    plain.chain(std::iter::once(Day::LastDate)).chain(of_weekday).chain(nearest)
}

/// The months of a cron, by shape: 28 stand for all.
struct Months(Vec<(Shape, u32)>);

impl Months {
    fn of(cron: &Cron) -> Self {
        let mut shapes: Vec<(Shape, u32)> = Vec::with_capacity(28);
        for year in (FIRST_YEAR..=LAST_YEAR).filter(|year| cron.years.contains((year - FIRST_YEAR) as u32)) {
            for month in Bits::from(cron.months).iter() {
                let shape = Shape::of(year, month);
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
        self.0.iter().map(|(shape, count)| days.mask(*shape).count_ones() * count).sum()
    }

    fn contains(&self, outer: &Days, inner: &Days) -> bool {
        self.0.iter().all(|(shape, _)| inner.mask(*shape) & !outer.mask(*shape) == 0)
    }

    /// Every date and every weekday that the days ever fall on.
    fn hulls(&self, days: &Days) -> (u32, u8) {
        let mut dates = 0;
        let mut weekdays = 0;
        for (shape, _) in &self.0 {
            let mask = days.mask(*shape);
            dates |= mask;
            for date in Bits::from(mask).iter() {
                weekdays |= 1 << shape.weekday(date);
            }
        }
        (dates, weekdays)
    }
}

/// The ways to write a set of numbers: as it is, and if that is a long list, the step around it.
fn forms(bits: Bits, field: &Field) -> Vec<Form> {
    let Some(exact) = stepped(bits, field) else {
        let list: Vec<_> = bits.iter().map(|bit| field.value(bit).to_string()).collect();
        let exact = Form { text: list.join(","), count: bits.len() };
        return std::iter::once(exact).chain(stepped(hull(bits), field)).collect();
    };
    vec![exact]
}

/// The set as one value, range or step, if it is one.
fn stepped(bits: Bits, field: &Field) -> Option<Form> {
    let form = |text| Some(Form { text, count: bits.len() });
    let first = bits.first_from(0)?;
    let Some(second) = bits.first_from(first + 1) else { return form(field.value(first).to_string()) };
    let (last, step) = (bits.last_to(255)?, second - first);
    if (first..=last).step_by(step as usize).ne(bits.iter()) {
        return None;
    }
    let end = field.bit(field.last);
    let (from, to) = (field.value(first), field.value(last));
    match bits.len() {
        _ if bits == field.all() => form("*".to_owned()),
        // Two values read better as a list, but where they halve the field.
        2 if first == field.bit(field.min) && 2 * step == end - first + 1 => form(format!("{from}/{step}")),
        2 => form(format!("{from},{to}")),
        _ if step == 1 => form(format!("{from}-{to}")),
        _ if last + step > end => form(format!("{from}/{step}")),
        _ => form(format!("{from}-{to}/{step}")),
    }
}

/// The smallest range or step around a set.
fn hull(bits: Bits) -> Bits {
    let (first, last) = (bits.first_from(0).unwrap_or(0), bits.last_to(255).unwrap_or(0));
    let step = bits.iter().fold(0, |step, bit| greatest_common_divisor(step, bit - first));
    (first..=last).step_by(step.max(1) as usize).collect()
}

fn greatest_common_divisor(left: u32, right: u32) -> u32 {
    if right == 0 { left } else { greatest_common_divisor(right, left % right) }
}

/// The expression with the fewest times among those that are short enough; and whether it is exact.
fn shortest_fit(choices: &[Vec<Form>; 5], day: &Day) -> (String, bool) {
    let mut best: Option<(u64, String, bool)> = None;
    for combination in 0..1_u32 << choices.len() {
        let picked: Option<Vec<&Form>> =
            choices.iter().enumerate().map(|(at, forms)| forms.get((combination >> at & 1) as usize)).collect();
        let Some([minute, hour, days, month, year]) = picked.as_deref() else { continue };
        let (month_day, weekday) = day.fields(&days.text);
        let expression =
            format!("cron({} {} {month_day} {} {weekday} {})", minute.text, hour.text, month.text, year.text);
        let times = [minute, hour, days, month, year].iter().map(|form| u64::from(form.count)).product();
        if expression.len() <= MAX_LENGTH && best.as_ref().is_none_or(|(least, ..)| times < *least) {
            best = Some((times, expression, combination == 0));
        }
    }
    best.map_or_else(|| ("cron(* * * * ? *)".to_owned(), false), |(_, expression, exact)| (expression, exact))
}

/// `MON-FRI`, or a list: a range that wraps around is not known to be accepted.
fn weekday_names(days: u8) -> String {
    let named: Vec<_> = Bits::from(u64::from(days)).iter().map(|weekday| WEEKDAYS[weekday as usize]).collect();
    let first = days.trailing_zeros();
    let is_run = days >> first == (1 << named.len()) - 1;
    match named.as_slice() {
        [from, _, .., to] if is_run && named.len() > 2 => format!("{from}-{to}"),
        _ => named.join(","),
    }
}

/// Whether the zone's offsets are whole hours from 2020 on: then its minutes are UTC's minutes.
fn has_whole_hours(tz: Tz) -> bool {
    // Shorter than any span between two changes of the clocks that the zone database has.
    let step = TimeDelta::days(14);
    let from = DateTime::from_timestamp(1_577_836_800, 0).unwrap_or_default();
    let samples = std::iter::successors(Some(from), |at| Some(*at + step)).take(26 * 25);
    let mut offsets = samples.map(|at| tz.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc());
    offsets.all(|offset| offset % 3600 == 0)
}
