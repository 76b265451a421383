//! Step 5 of 7: the grammar of EventBridge's six cron fields, as AWS documents it.
//!
//! Deliberately strict: what AWS does not document is refused here and must never be published: `LW`, `L-3`, `MON#1`,
//! wrap-around ranges, lower-case names, a step between weekdays, and lists of anything except different numbers.

use std::collections::BTreeSet;

use super::cron::{Cron, Day, FIRST_YEAR, LAST_YEAR};

/// One field: its values and their names.
struct Field {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const MINUTES: Field = Field { min: 0, max: 59, names: &[] };
const HOURS: Field = Field { min: 0, max: 23, names: &[] };
const DAYS: Field = Field { min: 1, max: 31, names: &[] };
const MONTHS: Field = Field {
    min: 1,
    max: 12,
    names: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
};
const WEEKDAYS: Field = Field { min: 1, max: 7, names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"] };
/// Weeks of a month, as `#` counts them.
const WEEKS: Field = Field { min: 1, max: 5, names: &[] };
const YEARS: Field = Field { min: FIRST_YEAR as u32, max: LAST_YEAR as u32, names: &[] };

impl Cron {
    /// Parses the text between the parentheses of `cron(...)`; `None` if AWS would refuse it.
    pub fn parse(text: &str) -> Option<Cron> {
        let fields: Vec<&str> = text.split(' ').collect();
        let [minutes, hours, day_of_month, month, day_of_week, year] = fields[..] else { return None };
        let day = match (day_of_month, day_of_week) {
            ("?", "?") => return None,
            (day_of_month, "?") => parse_day_of_month(day_of_month)?,
            ("?", day_of_week) => parse_day_of_week(day_of_week)?,
            _ => return None,
        };
        let mut years = vec![false; (YEARS.max - YEARS.min + 1) as usize];
        for value in values(year, &YEARS)? {
            years[(value - YEARS.min) as usize] = true;
        }
        Some(Cron {
            minutes: bits(minutes, &MINUTES)?,
            hours: bits(hours, &HOURS)?,
            day,
            months: bits(month, &MONTHS)?,
            years,
        })
    }
}

/// `L` and `15W` must be the complete field, never items of a list.
fn parse_day_of_month(text: &str) -> Option<Day> {
    let days = |days| Day::OfMonth { days, last: false, nearest_weekday_to: 0 };
    match text.strip_suffix('W') {
        _ if text == "L" => Some(Day::OfMonth { days: 0, last: true, nearest_weekday_to: 0 }),
        Some(day) => Some(Day::OfMonth { days: 0, last: false, nearest_weekday_to: 1 << number(day, &DAYS)? }),
        None => bits(text, &DAYS).map(days),
    }
}

/// `6L` and `3#2` must be the complete field, too, and name their weekday by its number.
fn parse_day_of_week(text: &str) -> Option<Day> {
    if let Some((weekday, nth)) = text.split_once('#') {
        return Some(Day::Nth { weekday: digits(weekday, &WEEKDAYS)?, nth: digits(nth, &WEEKS)? });
    }
    if let Some(weekday) = text.strip_suffix('L') {
        return Some(Day::OfWeek { weekdays: 0, last: 1 << digits(weekday, &WEEKDAYS)? });
    }
    // AWS's table lists no `/` for this field.
    if text.contains('/') {
        return None;
    }
    bits(text, &WEEKDAYS).map(|weekdays| Day::OfWeek { weekdays, last: 0 })
}

fn bits(text: &str, field: &Field) -> Option<u64> {
    values(text, field).map(|values| values.iter().fold(0, |set, value| set | 1 << value))
}

/// One item of any kind, or a list of different numbers.
fn values(text: &str, field: &Field) -> Option<Vec<u32>> {
    if !text.contains(',') {
        return item_values(text, field);
    }
    let are_names = text.starts_with(|first: char| first.is_ascii_alphabetic());
    let read = if are_names { name } else { digits };
    let values: Vec<u32> = text.split(',').map(|item| read(item, field)).collect::<Option<_>>()?;
    let different: BTreeSet<_> = values.iter().collect();
    (different.len() == values.len()).then_some(values)
}

/// `*`, `a`, `a-b`, each with an optional `/step`; `a/step` continues to the end of the field.
fn item_values(item: &str, field: &Field) -> Option<Vec<u32>> {
    let (range, step) = match item.split_once('/') {
        Some((range, step)) => (range, Some(number(step, &Field { min: 1, max: field.max, names: &[] })?)),
        None => (item, None),
    };
    let (from, to) = match (range, range.split_once('-')) {
        ("*", _) => (field.min, field.max),
        (_, Some((from, to))) => (number(from, field)?, number(to, field)?),
        (single, None) if step.is_some() => (number(single, field)?, field.max),
        (single, None) => (number(single, field)?, number(single, field)?),
    };
    (from <= to).then(|| (from..=to).step_by(step.unwrap_or(1) as usize).collect())
}

fn number(text: &str, field: &Field) -> Option<u32> {
    name(text, field).or_else(|| digits(text, field))
}

fn name(text: &str, field: &Field) -> Option<u32> {
    field.names.iter().position(|name| *name == text).map(|position| field.min + position as u32)
}

fn digits(text: &str, field: &Field) -> Option<u32> {
    let digits = !text.is_empty() && text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|value| digits && (field.min..=field.max).contains(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AWS was seen to accept these.
    #[test]
    fn crons_that_aws_accepts_are_accepted() {
        for text in [
            "0-15/1 8-8 ? * 2,3,4,5,6,7 *",
            "30-30 13-13 ? * 2,4,6 *",
            "1-31/30 1-1 ? * 1,7 *",
            "0 11-23/2 * * ? *",
            "1 1-12/3 * * ? *",
            "0 10 * * ? *",
            "15 12 ? * MON-FRI *",
            "0 8 1 * ? *",
            "0 9 ? * 3#2 *",
            "0 9 ? * 6L *",
            "0 9 3W * ? *",
            "0 9 L * ? *",
            "1/10 * * JAN,JUL ? 2026-2030/2",
        ] {
            assert!(Cron::parse(text).is_some(), "{text}");
        }
    }

    /// AWS was seen to reject these.
    #[test]
    fn crons_that_aws_rejects_are_rejected() {
        for text in ["0 1 * * * *", "7 20 * * NOT *", "71 8 1 * ? *", "", "INVALID", "0 0 12 * * ? *"] {
            assert!(Cron::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn undocumented_crons_are_rejected() {
        for text in [
            "0 9 LW * ? *",
            "0 9 L-3 * ? *",
            "0 9 ? * L *",
            "0 9 ? * FRI-MON *",
            "0 22-2 * * ? *",
            "0 9 ? * mon *",
            "0 9 ? jan MON *",
            "0 9 ? * MON-FRI/2 *",
            "0 9 ? * 3#1,6#3 *",
            "0 9 ? * ? *",
            "0 9 * * ?",
            " 0 9 * * ? *",
            "0  9 * * ? *",
            "0 9 * * ? 2200",
            "0 9 0 * ? *",
            "0 9 ? * 0 *",
            "*/0 9 * * ? *",
            "+5 9 * * ? *",
            "0, 9 * * ? *",
        ] {
            assert!(Cron::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn lists_contain_different_values() {
        for text in [
            "0 9 L,15 * ? *",
            "0 9 15,L * ? *",
            "0 9 15W,20 * ? *",
            "0 9 1W,15W * ? *",
            "0 9 1-5,20 * ? *",
            "0 9 ? * 6L,2 *",
            "0 9 ? * MON,6L *",
            "0 9 ? * MON#1 *",
            "0 9 ? * MONL *",
            "0 9 ? * MON-WED,FRI *",
            "0 9 ? * SUN,SUN *",
            "0 9 ? * SUN,2 *",
            "0 9 ? * 2,SUN *",
            "0 9 ? JAN-MAR,6 MON *",
            "0 9 ? JAN,6 MON *",
            "0-5,30-35 9 * * ? *",
            "0/5,7 9 * * ? *",
            "*,5 9 * * ? *",
            "1,1 9 * * ? *",
            "1,01 9 * * ? *",
            "0 9 * * ? *,2030",
            "0 9 * * ? 2026-2028,2030",
        ] {
            assert!(Cron::parse(text).is_none(), "{text}");
        }
        for text in ["59,0,30 22,2 1,15 MAR,JAN ? 2026,2030", "0 9 ? * SUN,SAT *", "0 9 ? * 7,1 *"] {
            assert!(Cron::parse(text).is_some(), "{text}");
        }
    }
}
