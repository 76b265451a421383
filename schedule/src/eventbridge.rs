//! Step 4 of 7: compiles a cron to the one expression for EventBridge Scheduler.
//!
//! Exact if EventBridge can express the cron, else the smallest superset; `:invoke` refuses the surplus. The compiler
//! uses only grammar that AWS is known to accept: six fields, `?` in exactly one day field, weekday names, no
//! wrap-around range, single values, one range, one step, or a list of numbers.

mod day;
pub(crate) mod form;

use crate::{
    Cron, Timezone,
    bits::Bits,
    eventbridge::{
        day::{DayForm, day_forms},
        form::{Coverage, Form, list_forms},
    },
    field::{HOUR, MINUTE, MONTH, YEAR},
};

/// EventBridge's limit in characters, `cron()` included.
const MAX_LENGTH: usize = 256;

/// What is published in EventBridge for a cron; returned by [`compile_cron`].
///
/// ```
/// use schedule::{Coverage, Cron, compile_cron};
/// let compiled = compile_cron(&Cron::parse("0 9 * * 1-5")?, "Europe/Paris".parse().unwrap());
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

/// Returns the EventBridge expression for a cron in a timezone.
///
/// ```
/// use schedule::{Cron, compile_cron};
/// let every_five = compile_cron(&Cron::parse("*/5 * * * *")?, "America/New_York".parse().unwrap());
/// assert_eq!(every_five.expression, "cron(0/5 * * * ? *)");
/// // Open by the hour: the same instants in UTC, where no hour is lost or doubled.
/// assert_eq!(every_five.timezone, schedule::Timezone::UTC);
/// # Ok::<(), schedule::CronError>(())
/// ```
pub fn compile_cron(cron: &Cron, tz: Timezone) -> Compiled {
    let is_open = cron.has_open_hour() && cron.days.are_open() && cron.has_open_months() && cron.has_open_years();
    let minutes_east = if is_open { tz.minutes_east() } else { None };
    let minutes = minutes_east.map_or(cron.minutes.into(), |east| minutes_in_utc(cron.minutes.into(), east));
    let others = [
        list_forms(minutes, &MINUTE),
        list_forms(cron.hours.into(), &HOUR),
        list_forms(cron.months.into(), &MONTH),
        list_forms(cron.years, &YEAR),
    ];
    let (expression, coverage) = smallest_fit(&day_forms(cron), &others);
    let timezone = if minutes_east.is_some() { Timezone::UTC } else { tz };
    Compiled { expression, timezone, coverage }
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
