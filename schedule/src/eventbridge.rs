//! Step 4 of 7: compiles a cron to the one expression for EventBridge Scheduler.
//!
//! Exact if EventBridge can express the cron, else the smallest superset; `:invoke` refuses the surplus. The compiler
//! uses only grammar that AWS is known to accept: six fields, `?` in exactly one day field, weekday names, no
//! wrap-around range, single values, one range, one step, or a list of numbers.

mod day;

use crate::{
    Cron, Timezone,
    bits::Bits,
    eventbridge::day::{DayForm, day_forms},
    field::{Field, HOUR, MINUTE, MONTH, YEAR},
};

/// EventBridge's limit in characters, `cron()` included.
const MAX_LENGTH: usize = 256;

/// What is published in EventBridge for a cron; returned by [`compile`].
///
/// ```
/// use schedule::{Coverage, Cron, compile};
/// let compiled = compile(&Cron::parse("0 9 * * 1-5")?, "Europe/Paris".parse().unwrap());
/// assert_eq!(compiled.expression, "cron(0 9 ? * MON-FRI *)");
/// assert_eq!((compiled.timezone.name(), compiled.coverage), ("Europe/Paris", Coverage::Exact));
/// # Ok::<(), schedule::CronError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// `cron(...)`, at most 256 characters.
    pub expression: String,
    /// The timezone of the expression: the schedule's own, or UTC for a cron with open hours.
    pub timezone: Timezone,
    /// Whether it fires at times that the cron does not name.
    pub coverage: Coverage,
}

/// Whether an expression fires at times that the cron does not name.
///
/// ```
/// use schedule::{Coverage, Cron, compile};
/// let either_day = Cron::parse("0 9 13 * 5")?;
/// assert_eq!(compile(&either_day, schedule::Timezone::UTC).coverage, Coverage::Superset);
/// assert_eq!(Coverage::Superset.as_str(), "superset");
/// # Ok::<(), schedule::CronError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// Returns the EventBridge expression for a cron in a timezone.
///
/// ```
/// use schedule::{Cron, compile};
/// let every_five = compile(&Cron::parse("*/5 * * * *")?, "America/New_York".parse().unwrap());
/// assert_eq!(every_five.expression, "cron(0/5 * * * ? *)");
/// // Open by the hour: the same instants in UTC, where no hour is lost or doubled.
/// assert_eq!(every_five.timezone, schedule::Timezone::UTC);
/// # Ok::<(), schedule::CronError>(())
/// ```
pub fn compile(cron: &Cron, tz: Timezone) -> Compiled {
    let is_open = cron.has_open_hour() && cron.days.are_open() && cron.has_open_months() && cron.has_open_years();
    let minutes_east = if is_open { tz.minutes_east() } else { None };
    let minutes = minutes_east.map_or(cron.minutes.into(), |east| minutes_in_utc(cron.minutes.into(), east));
    let others = [
        forms(minutes, &MINUTE),
        forms(cron.hours.into(), &HOUR),
        forms(cron.months.into(), &MONTH),
        forms(cron.years, &YEAR),
    ];
    let (expression, coverage) = smallest_fit(&day_forms(cron), &others);
    let timezone = if minutes_east.is_some() { Timezone::UTC } else { tz };
    Compiled { expression, timezone, coverage }
}

/// A text for a field.
struct Form {
    text: String,
    /// How many values it has; for the day fields: how many days.
    count: u32,
    coverage: Coverage,
}

/// The texts for a set of numbers: its exact form, and if that is a list, the range or step that contains it.
fn forms(bits: Bits, field: &Field) -> Vec<Form> {
    let exact = Form { text: written(bits, field), count: bits.len(), coverage: Coverage::Exact };
    let wider = hull(bits);
    if wider == bits {
        return vec![exact];
    }
    vec![exact, Form { text: written(wider, field), count: wider.len(), coverage: Coverage::Superset }]
}

/// One value, range or step if the set is one, else a list.
fn written(bits: Bits, field: &Field) -> String {
    stepped(bits, field).unwrap_or_else(|| {
        let list: Vec<_> = bits.iter().map(|bit| field.value(bit).to_string()).collect();
        list.join(",")
    })
}

/// The set as one value, range or step, if it is one.
fn stepped(bits: Bits, field: &Field) -> Option<String> {
    let first = bits.first_from(0)?;
    let Some(second) = bits.first_from(first + 1) else { return Some(field.value(first).to_string()) };
    let (last, step) = (bits.last_to(255)?, second - first);
    if (first..=last).step_by(step as usize).ne(bits.iter()) {
        return None;
    }
    let end = field.bit(field.last);
    let (from, to) = (field.value(first), field.value(last));
    Some(match bits.len() {
        _ if bits == field.all() => "*".to_owned(),
        // Two values are easier to read as a list, except if they halve the field.
        2 if first == field.bit(field.min) && 2 * step == end - first + 1 => format!("{from}/{step}"),
        2 => format!("{from},{to}"),
        _ if step == 1 => format!("{from}-{to}"),
        _ if last + step > end => format!("{from}/{step}"),
        _ => format!("{from}-{to}/{step}"),
    })
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

/// Returns the expression with the fewest times among those that are short enough.
fn smallest_fit(days: &[DayForm], others: &[Vec<Form>; 4]) -> (String, Coverage) {
    let mut best: Option<(u64, String, Coverage)> = None;
    let [minutes, hours, months, years] = others;
    for day in days {
        for (minute, hour) in pairs(minutes, hours) {
            for (month, year) in pairs(months, years) {
                let forms = [minute, hour, month, year];
                let times = forms.iter().map(|form| u64::from(form.count)).product::<u64>() * u64::from(day.count);
                let DayForm { month_day, weekday, .. } = day;
                let is_better = best.as_ref().is_none_or(|(fewest, ..)| times < *fewest);
                let expression = [&minute.text, &hour.text, month_day, &month.text, weekday, &year.text]
                    .map(String::as_str)
                    .join(" ");
                if is_better && expression.len() + "cron()".len() <= MAX_LENGTH {
                    let widest = forms.iter().map(|form| form.coverage).chain([day.coverage]).max();
                    best = Some((times, format!("cron({expression})"), widest.unwrap_or(day.coverage)));
                }
            }
        }
    }
    best.map_or_else(
        || ("cron(* * * * ? *)".to_owned(), Coverage::Superset),
        |(_, expression, coverage)| (expression, coverage),
    )
}

fn pairs<'a>(left: &'a [Form], right: &'a [Form]) -> impl Iterator<Item = (&'a Form, &'a Form)> {
    left.iter().flat_map(move |left| right.iter().map(move |right| (left, right)))
}

/// Returns the minutes of UTC's hours for these minutes of a zone whose clocks are `east` minutes ahead.
fn minutes_in_utc(minutes: Bits, east: u32) -> Bits {
    minutes.iter().map(|minute| (minute + 60 - east) % 60).collect()
}
