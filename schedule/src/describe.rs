//! [`Cron`] in English, from the same sets that decide when it fires.

use crate::{
    Cron,
    bits::Bits,
    days::{Days, MonthDays, Rule, Weekdays},
    field::{Field, HOUR, MINUTE, MONTH_DAY, YEAR},
};

/// Up to this many times of day are listed individually.
const MOST_CLOCK_TIMES: u32 = 6;
/// From this many values on, a step is described as a step.
const FEWEST_STEPS: u32 = 4;
/// Up to this many years and runs of years are listed individually.
const MOST_YEARS: usize = 12;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl Cron {
    /// Returns an English description of its times.
    ///
    /// ```
    /// let cron = schedule::Cron::parse("0 9 * * 1-5")?;
    /// assert_eq!(cron.describe_times(), "At 09:00, Monday to Friday");
    /// # Ok::<(), schedule::CronError>(())
    /// ```
    pub fn describe_times(&self) -> String {
        sentence(self)
    }
}

/// Returns one sentence without a full stop: times, days, months and years.
fn sentence(cron: &Cron) -> String {
    let time = time(cron);
    let days = match days(&cron.days) {
        None if time.starts_with("At ") => Some("every day".to_owned()),
        days => days,
    };
    let months = (!cron.has_open_months()).then(|| format!("in {}", months(cron.months.into())));
    let years = (!cron.has_open_years()).then(|| years(cron.years));
    [Some(time), days, months, years].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn time(cron: &Cron) -> String {
    let (minutes, hours) = (Bits::from(cron.minutes), Bits::from(cron.hours));
    if minutes.len() * hours.len() <= MOST_CLOCK_TIMES {
        return format!("At {}", joined(clock_times(minutes, hours), "and"));
    }
    if minutes == Bits::from_range(0, 0) {
        return every_hour(hours);
    }
    match rhythm(minutes, &MINUTE) {
        Some(1) => format!("Every minute{}", within(hours)),
        Some(step) => format!("Every {step} minutes{}", within(hours)),
        None => format!("{} at {}", every_hour(hours), numbers(minutes, "minute", &MINUTE)),
    }
}

fn clock_times(minutes: Bits, hours: Bits) -> Vec<String> {
    hours.iter().flat_map(|hour| minutes.iter().map(move |minute| format!("{hour:02}:{minute:02}"))).collect()
}

fn every_hour(hours: Bits) -> String {
    match (rhythm(hours, &HOUR), run(hours)) {
        (Some(1), _) => "Every hour".to_owned(),
        (Some(step), _) => format!("Every {step} hours"),
        (None, Some((first, last))) => format!("Every hour from {first:02}:00 to {last:02}:00"),
        (None, None) => format!("In {}", numbers(hours, "hour", &HOUR)),
    }
}

/// The hours, after "every N minutes".
fn within(hours: Bits) -> String {
    match (rhythm(hours, &HOUR), run(hours)) {
        (Some(1), _) => String::new(),
        (Some(step), _) => format!(" of every {} hour", ordinal(step)),
        (None, Some((first, last))) => format!(" from {first:02}:00 to {last:02}:59"),
        (None, None) => format!(" in {}", numbers(hours, "hour", &HOUR)),
    }
}

/// `None` if every day matches.
fn days(days: &Days) -> Option<String> {
    let dates = (!days.month_days.are_open()).then(|| dates(&days.month_days));
    let weekdays = (!days.weekdays.are_open()).then(|| weekdays(&days.weekdays));
    match (dates, weekdays, days.rule) {
        (Some(dates), Some(weekdays), Rule::Either) => Some(format!("{dates} or {weekdays}")),
        (Some(dates), Some(weekdays), Rule::Both) => Some(format!("{dates} but only {weekdays}")),
        (dates, weekdays, _) => dates.or(weekdays),
    }
}

fn dates(days: &MonthDays) -> String {
    let mut parts = Vec::new();
    if days.plain != 0 {
        parts.push(format!("on {} of the month", numbers(days.plain.into(), "day", &MONTH_DAY)));
    }
    for date in Bits::from(days.nearest).iter() {
        parts.push(format!("on the weekday nearest the {}", ordinal(date)));
    }
    if days.last {
        parts.push("on the last day of the month".to_owned());
    }
    if days.last_weekday {
        parts.push("on the last weekday of the month".to_owned());
    }
    joined(parts, "and")
}

fn weekdays(days: &Weekdays) -> String {
    let name = |weekday: u32| WEEKDAYS[weekday as usize].to_owned();
    let plain = Bits::from(u64::from(days.plain));
    let mut parts = Vec::new();
    match run(plain) {
        Some((first, last)) if plain.len() > 2 => parts.push(format!("{} to {}", name(first), name(last))),
        _ if plain.is_empty() => {}
        _ => parts.push(format!("on {}", joined(plain.iter().map(name).collect(), "and"))),
    }
    for (week, nth) in ["first", "second", "third", "fourth", "fifth"].into_iter().zip(days.nth) {
        for weekday in Bits::from(u64::from(nth)).iter() {
            parts.push(format!("on the {week} {} of the month", name(weekday)));
        }
    }
    for weekday in Bits::from(u64::from(days.last)).iter() {
        parts.push(format!("on the last {} of the month", name(weekday)));
    }
    joined(parts, "and")
}

fn months(months: Bits) -> String {
    let name = |month: u32| MONTHS[month as usize - 1].to_owned();
    match run(months) {
        Some((first, last)) if months.len() > 2 => format!("{} to {}", name(first), name(last)),
        _ => joined(months.iter().map(name).collect(), "and"),
    }
}

fn years(years: Bits) -> String {
    match run(years) {
        Some((first, last)) if years.len() > 2 => format!("from {} to {}", YEAR.value_of(first), YEAR.value_of(last)),
        _ => format!("in {}", scattered_years(years)),
    }
}

fn scattered_years(years: Bits) -> String {
    if let Some(steps) = steps(years, "year", &YEAR) {
        return steps;
    }
    let runs = runs(years, &YEAR);
    match (years.first_from(0), years.last_to(255)) {
        (Some(first), Some(last)) if runs.len() > MOST_YEARS => {
            format!("{} of the years from {} to {}", years.len(), YEAR.value_of(first), YEAR.value_of(last))
        }
        _ => joined(runs, "and"),
    }
}

/// `minute 5`, `minutes 5, 7 and 20 to 30`, `every 2nd minute from 10 to 58`.
fn numbers(bits: Bits, noun: &str, field: &Field) -> String {
    let plural = if bits.len() == 1 { "" } else { "s" };
    steps(bits, noun, field).unwrap_or_else(|| format!("{noun}{plural} {}", joined(runs(bits, field), "and")))
}

/// `every 2nd minute from 10 to 58`, if the set is one step.
fn steps(bits: Bits, noun: &str, field: &Field) -> Option<String> {
    let (first, last) = (bits.first_from(0)?, bits.last_to(255)?);
    let step = bits.first_from(first + 1)? - first;
    let is_step = step > 1 && (first..=last).step_by(step as usize).eq(bits.iter());
    let (from, to) = (field.value_of(first), field.value_of(last));
    (is_step && bits.len() >= FEWEST_STEPS).then(|| format!("every {} {noun} from {from} to {to}", ordinal(step)))
}

/// Single values, and from three neighbours on, `a to b`.
fn runs(bits: Bits, field: &Field) -> Vec<String> {
    let mut written = Vec::new();
    let mut next = bits.first_from(0);
    while let Some(first) = next {
        let last = (first..).take_while(|bit| bits.contains(*bit)).last().unwrap_or(first);
        let last = if last - first < 2 { first } else { last };
        written.push(match last - first {
            0 => field.value_of(first).to_string(),
            _ => format!("{} to {}", field.value_of(first), field.value_of(last)),
        });
        next = bits.first_from(last + 1);
    }
    written
}

/// The step of a set that repeats evenly from the start of the field: every 15 minutes.
fn rhythm(bits: Bits, field: &Field) -> Option<u32> {
    let size = field.last - field.min + 1;
    let step = size / bits.len().max(1);
    let (first, last) = (field.bit_of(field.min), field.bit_of(field.last));
    let is_even = size.is_multiple_of(step) && bits.len() > 1 && (first..=last).step_by(step as usize).eq(bits.iter());
    is_even.then_some(step)
}

/// The first and last value of a set without gaps.
fn run(bits: Bits) -> Option<(u32, u32)> {
    let (first, last) = (bits.first_from(0)?, bits.last_to(255)?);
    (last - first + 1 == bits.len()).then_some((first, last))
}

fn joined(mut parts: Vec<String>, word: &str) -> String {
    match (parts.pop(), parts.is_empty()) {
        (None, _) => String::new(),
        (Some(last), true) => last,
        (Some(last), false) => format!("{} {word} {last}", parts.join(", ")),
    }
}

fn ordinal(number: u32) -> String {
    let suffix = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}

#[cfg(test)]
mod tests {
    use crate::Cron;

    #[test]
    fn a_cron_reads_as_a_sentence() {
        for (text, sentence) in [
            ("* * * * *", "Every minute"),
            ("*/5 * * * *", "Every 5 minutes"),
            ("*/7 * * * *", "Every hour at every 7th minute from 0 to 56"),
            ("0 * * * *", "Every hour"),
            ("30 * * * *", "Every hour at minute 30"),
            ("5,35 * * * *", "Every hour at minutes 5 and 35"),
            ("0 */6 * * *", "At 00:00, 06:00, 12:00 and 18:00, every day"),
            ("0 */2 * * *", "Every 2 hours"),
            ("0 9-17 * * 1-5", "Every hour from 09:00 to 17:00, Monday to Friday"),
            ("*/15 9-17 * * 1-5", "Every 15 minutes from 09:00 to 17:59, Monday to Friday"),
            ("* */2 * * *", "Every minute of every 2nd hour"),
            ("* 1,5 * * *", "Every minute in hours 1 and 5"),
            ("10 1,2,3,5,6,7,11 * * *", "In hours 1 to 3, 5 to 7 and 11 at minute 10"),
            ("0,20,50 9,12,17 * * *", "In hours 9, 12 and 17 at minutes 0, 20 and 50"),
            ("*/5 0 * * *", "Every 5 minutes from 00:00 to 00:59"),
            ("0 9 * * *", "At 09:00, every day"),
            ("0 9 * * 1,2", "At 09:00, on Monday and Tuesday"),
            ("0 9 * 1,2 *", "At 09:00, every day, in January and February"),
            ("30 9,17 * * 1,3", "At 09:30 and 17:30, on Monday and Wednesday"),
            ("0 0 1,15 * *", "At 00:00, on days 1 and 15 of the month"),
            ("0 0 13 * 5", "At 00:00, on day 13 of the month or on Friday"),
            ("0 0 */2 * 1", "At 00:00, on every 2nd day from 1 to 31 of the month but only on Monday"),
            ("0 0 L * *", "At 00:00, on the last day of the month"),
            ("0 0 LW * *", "At 00:00, on the last weekday of the month"),
            ("0 0 15W * *", "At 00:00, on the weekday nearest the 15th"),
            (
                "0 0 1W,11W,12W,13W,21W,22W,23W * *",
                "At 00:00, on the weekday nearest the 1st, on the weekday nearest the 11th, on the weekday nearest \
                 the 12th, on the weekday nearest the 13th, on the weekday nearest the 21st, on the weekday nearest \
                 the 22nd and on the weekday nearest the 23rd",
            ),
            ("0 0 * * 5L", "At 00:00, on the last Friday of the month"),
            ("0 0 * * 5#2", "At 00:00, on the second Friday of the month"),
            ("0 12 * 1,7 *", "At 12:00, every day, in January and July"),
            ("0 12 * 6-8 *", "At 12:00, every day, in June to August"),
            ("0 12 1 */3 *", "At 12:00, on day 1 of the month, in January, April, July and October"),
            ("0 30 9 31 12 * 2030", "At 09:30, on day 31 of the month, in December, in 2030"),
            ("0 0 0 1 1 * 2026-2030", "At 00:00, on day 1 of the month, in January, from 2026 to 2030"),
            ("0 0 0 1 1 * 2026,2027", "At 00:00, on day 1 of the month, in January, in 2026 and 2027"),
            ("0 0 0 1 1 * 2026,2028", "At 00:00, on day 1 of the month, in January, in 2026 and 2028"),
            ("0 0 0 1 1 * */4", "At 00:00, on day 1 of the month, in January, in every 4th year from 1970 to 2198"),
            ("0 0 0 1 1 * 2026,2030-2032", "At 00:00, on day 1 of the month, in January, in 2026 and 2030 to 2032"),
            (
                "0 0 0 1 1 * 1970-1990/2,1993",
                "At 00:00, on day 1 of the month, in January, in 1970, 1972, 1974, 1976, 1978, 1980, 1982, 1984, \
                 1986, 1988, 1990 and 1993",
            ),
            (
                "0 0 0 1 1 * 1970-1990/2,1993,1996",
                "At 00:00, on day 1 of the month, in January, in 13 of the years from 1970 to 1996",
            ),
            (
                "0 0 0 1 1 * */4,*/6",
                "At 00:00, on day 1 of the month, in January, in 77 of the years from 1970 to 2198",
            ),
        ] {
            assert_eq!(Cron::parse(text).map(|cron| cron.describe_times()), Ok(sentence.to_owned()), "{text}");
        }
    }
}
