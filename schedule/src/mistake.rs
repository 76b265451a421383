//! Step 1 of 7: what people write instead of a cron, and what they should write.
//!
//! It is asked only after the parser has refused a text. The rules are tried in their order; the first one that fits answers. Their
//! examples are typed mistakes of people; tests/mistakes.rs has them all.

use crate::Cron;

/// Fits a text and its fields, or does not.
type Rule = fn(&str, &[&str]) -> Option<String>;

/// The sentence about a well-known mistake; `None`: the parser's own sentence says it best.
pub(crate) fn explain_mistake(text: &str) -> Option<String> {
    let text = text.trim();
    let fields: Vec<&str> = text.split_whitespace().collect();
    let rules: [Rule; 14] = [
        empty_or_quoted,
        characters,
        comment,
        quartz,
        form_of_eventbridge,
        timezone,
        every,
        jenkins,
        clock_time,
        split_field,
        crontab_line,
        step,
        backwards,
        names,
    ];
    rules.iter().find_map(|rule| rule(text, &fields)).or_else(|| impossible_day(&fields))
}

fn empty_or_quoted(text: &str, _fields: &[&str]) -> Option<String> {
    if text.is_empty() {
        return Some("the cron is empty: write five fields, for example 0 9 * * *".to_owned());
    }
    let is_quoted = text.starts_with(['"', '\'', '`']) || text.ends_with(['"', '\'', '`']);
    is_quoted.then(|| format!("write it without the quotes: {}", text.trim_matches(['"', '\'', '`'])))
}

fn characters(text: &str, _fields: &[&str]) -> Option<String> {
    let other = text.chars().find(|one| !one.is_ascii())?;
    match other {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => Some(format!("{other} is not the hyphen -: type it again")),
        '\u{ff10}'..='\u{ff19}' | '\u{660}'..='\u{669}' => {
            Some(format!("{other} is not one of the digits 0 to 9: type it again"))
        }
        _ => None,
    }
}

fn comment(text: &str, fields: &[&str]) -> Option<String> {
    let at = fields.iter().skip(1).position(|field| field.starts_with('#'))? + 1;
    let before = fields[..at].join(" ");
    text.contains('#').then(|| format!("a cron has no comment: only {before} belongs here"))
}

/// Numbers of weekdays in Quartz' form, which counts Sunday as 1.
fn quartz(_text: &str, fields: &[&str]) -> Option<String> {
    let weekday = fields.get(5).filter(|_| matches!(fields.len(), 6 | 7) && fields[3] == "?")?;
    let mut written = String::new();
    let mut is_number = false;
    for part in weekday.split_inclusive([',', '-']) {
        let digits = part.len() - part.trim_start_matches(|one: char| one.is_ascii_digit()).len();
        let name = part[..digits].parse::<usize>().ok().and_then(|number| WEEKDAYS.get(number.checked_sub(1)?));
        is_number |= name.is_some();
        match name {
            Some(name) => written.push_str(name),
            None => written.push_str(&part[..digits]),
        }
        written.push_str(&part[digits..]);
    }
    let mut rewritten = fields.to_vec();
    rewritten[5] = &written;
    let rewritten = rewritten.join(" ");
    let is_accepted = is_number && Cron::parse(&rewritten).is_ok();
    is_accepted.then(|| format!("Quartz counts the days of the week from 1, Sunday, and we from 0: write {rewritten}"))
}

fn form_of_eventbridge(text: &str, fields: &[&str]) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    if let Some(rest) = lower.strip_prefix("cron ") {
        return rest.trim_start().starts_with('(').then(|| "write no blank between cron and (".to_owned());
    }
    if lower.starts_with("schedule(") {
        return Some("EventBridge's form is cron(0 9 * * ? *), and ours 0 9 * * *".to_owned());
    }
    if lower.starts_with("cron(") {
        let inner: Vec<&str> = text.get(5..)?.trim_end_matches(')').split_whitespace().collect();
        let marks = [2, 4].iter().filter(|at| inner.get(**at) == Some(&"?")).count();
        let example = match inner[..] {
            [minute, hour, day, month, "*", year] => format!("cron({minute} {hour} {day} {month} ? {year})"),
            [minute, hour, "*", month, weekday, year] => format!("cron({minute} {hour} ? {month} {weekday} {year})"),
            _ => return None,
        };
        return (marks != 1)
            .then(|| format!("in cron(...), exactly one of the two day fields must be ?: write {example}"));
    }
    let is_eventbridge = fields.len() == 6 && (fields[2] == "?" || fields[4] == "?");
    is_eventbridge.then(|| format!("this looks like EventBridge's six fields: write cron({})", fields.join(" ")))
}

fn timezone(_text: &str, fields: &[&str]) -> Option<String> {
    let first = fields.first()?;
    if first.starts_with("CRON_TZ=") || first.starts_with("TZ=") {
        return Some(format!("the timezone is a field of its own: write {} here", fields[1..].join(" ")));
    }
    let is_zone = |field: &&&str| match field.split_once('/') {
        Some((region, city)) => {
            region.len() > 2
                && region.chars().all(|one| one.is_ascii_alphabetic())
                && city.starts_with(|one: char| one.is_ascii_uppercase())
        }
        None => false,
    };
    let zone = fields.iter().skip(1).find(is_zone)?;
    Some(format!("the timezone is a field of its own: remove {zone} here"))
}

fn every(text: &str, _fields: &[&str]) -> Option<String> {
    let span = text.strip_prefix("@every")?.trim();
    let (number, unit) = span.split_at(span.find(|one: char| !one.is_ascii_digit()).unwrap_or(span.len()));
    let cron = match (number.parse::<u32>().ok()?, unit) {
        (1, "m") => "* * * * *".to_owned(),
        (n, "m") if n > 0 && n < 60 && 60 % n == 0 => format!("*/{n} * * * *"),
        (1, "h") | (60, "m") => "0 * * * *".to_owned(),
        (n, "h") if n > 0 && n < 24 && 24 % n == 0 => format!("0 */{n} * * *"),
        (24, "h") => "0 0 * * *".to_owned(),
        _ => return Some(format!("@every {span} divides neither the hour nor the day, so no cron means it")),
    };
    Some(format!("@every counts from the start of a program: write {cron}"))
}

fn jenkins(_text: &str, fields: &[&str]) -> Option<String> {
    let is_hash = |field: &&str| *field == "H" || field.starts_with("H/") || field.starts_with("H(");
    fields.iter().any(is_hash).then(|| {
        "Jenkins' H has no meaning here: choose a time; spread_secs lets the runs of many workflows start at different seconds".to_owned()
    })
}

fn clock_time(_text: &str, fields: &[&str]) -> Option<String> {
    for field in fields {
        if let Some((hour, minute)) = field.split_once(':')
            && let (Ok(hour), Ok(minute)) = (hour.parse::<u8>(), minute.parse::<u8>())
        {
            return Some(format!("a cron has no clock time: {field} is {minute} {hour} * * *"));
        }
        let lower = field.to_ascii_lowercase();
        let half =
            lower.strip_suffix("am").map(|hour| (hour, 0)).or_else(|| lower.strip_suffix("pm").map(|hour| (hour, 12)));
        if let Some((hour, half)) = half
            && let Ok(hour @ 1..=12) = hour.parse::<u8>()
        {
            return Some(format!("hours count from 0 to 23: {field} is {}", hour % 12 + half));
        }
    }
    None
}

/// A blank inside a list, a range or a step.
fn split_field(_text: &str, fields: &[&str]) -> Option<String> {
    let is_split = |pair: &[&str]| {
        let [left, right] = pair else { return None };
        let joins =
            left.ends_with([',', '-', '/']) && *left != "-" || right.starts_with([',', '-', '/']) && right.len() > 1;
        let is_path = right.starts_with('/') && !right[1..].starts_with(|one: char| one.is_ascii_digit());
        (joins && !is_path || *right == "-")
            .then(|| format!("a blank splits the field: write {left}{right}.. without blanks"))
    };
    if fields.len() < 6 {
        return None;
    }
    fields.windows(2).find_map(is_split).map(|sentence| sentence.replace("..", ""))
}

fn crontab_line(_text: &str, fields: &[&str]) -> Option<String> {
    let (first, rest) = fields.split_at_checked(5)?;
    let cron = first.join(" ");
    let next = rest.first()?;
    Cron::parse(&cron).ok()?;
    if rest.len() == 1 && next.len() == 4 && next.chars().all(|one| one.is_ascii_digit()) {
        return Some(format!("a year needs seven fields, with the seconds first: 0 {cron} {next}"));
    }
    let is_command = next.starts_with(['/', '.', '~', '$', '[']) || next.chars().any(|one| one.is_ascii_lowercase());
    is_command.then(|| format!("a line of a crontab has a command, or a user and a command: only {cron} belongs here"))
}

/// The fields of a cron of five: the name of what it counts, its lowest and its highest value.
const BOUNDS: [(&str, u32, u32); 5] =
    [("minutes", 0, 59), ("hours", 0, 23), ("days", 1, 31), ("months", 1, 12), ("days of the week", 0, 6)];

fn step(_text: &str, fields: &[&str]) -> Option<String> {
    if fields.len() != 5 {
        return None;
    }
    for (field, (unit, low, high)) in fields.iter().zip(BOUNDS) {
        let Some(step) = field.strip_prefix("*/").and_then(|step| step.parse::<u32>().ok()) else { continue };
        let span = high - low + 1;
        if step < span {
            continue;
        }
        return Some(match (unit, step) {
            ("minutes", 60) => "every 60 minutes is once an hour: 0 * * * *".to_owned(),
            ("minutes", step) if step % 60 == 0 && step / 60 < 24 && 24 % (step / 60) == 0 => {
                format!("every {step} minutes is 0 */{} * * *", step / 60)
            }
            ("hours", 24) => "every 24 hours is once a day: 0 0 * * *".to_owned(),
            _ => format!("every {step} {unit} has no cron: a step counts anew in each field, which ends at {high}"),
        });
    }
    None
}

const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const MONTH_NAMES: [&str; 12] = [
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
const WEEKDAY_NAMES: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// The number of a value that may be a name.
fn number(text: &str, at: usize) -> Option<u32> {
    let place = |names: &[&str]| names.iter().position(|name| text.eq_ignore_ascii_case(name));
    let named = match at {
        3 => place(&MONTHS).map(|place| place + 1),
        4 => place(&WEEKDAYS),
        _ => None,
    };
    named.and_then(|value| u32::try_from(value).ok()).or_else(|| text.parse().ok())
}

fn backwards(_text: &str, fields: &[&str]) -> Option<String> {
    if fields.len() != 5 {
        return None;
    }
    for (at, (field, (_, low, high))) in fields.iter().zip(BOUNDS).enumerate() {
        for part in field.split(',') {
            let Some((from, to)) = part.split_once('-') else { continue };
            let (Some(first), Some(last)) = (number(from, at), number(to, at)) else { continue };
            if first <= last || first > high || last < low {
                continue;
            }
            let range = |from: u32, to: u32| if from == to { from.to_string() } else { format!("{from}-{to}") };
            let both = format!("{},{}", range(first, high), range(low, last));
            return Some(format!("the range from {from} to {to} runs backwards: write {both}"));
        }
    }
    None
}

fn names(_text: &str, fields: &[&str]) -> Option<String> {
    for word in fields.iter().flat_map(|field| field.split([',', '-', '#', '/'])).filter(|word| word.len() > 3) {
        let is_begun = |name: &&&str| name.get(..word.len()).is_some_and(|begin| word.eq_ignore_ascii_case(begin));
        if let Some(name) = MONTH_NAMES.iter().chain(&WEEKDAY_NAMES).find(is_begun) {
            return Some(format!("names have three letters: write {} for {word}", name[..3].to_uppercase()));
        }
    }
    fields
        .iter()
        .any(|field| field.contains("L-"))
        .then(|| "days before the last one are not in the dialect: L is the last day of the month".to_owned())
}

/// A day that a month does not have.
fn impossible_day(fields: &[&str]) -> Option<String> {
    let (day, month, year) = match fields {
        [_, _, day, month, _] => (*day, *month, None),
        [_, _, _, day, month, _] => (*day, *month, None),
        [_, _, _, day, month, _, year] => (*day, *month, Some(*year)),
        _ => return None,
    };
    let day: u32 = day.parse().ok()?;
    let month = number(month, 3).filter(|month| (1..=12).contains(month))?;
    let name = MONTH_NAMES.get(usize::try_from(month - 1).ok()?)?;
    match (month, day, year) {
        (2, 29, Some(year)) => Some(format!("{year} has no 29 February")),
        (2, 30 | 31, _) | (4 | 6 | 9 | 11, 31, _) => Some(format!("{name} has no day {day}")),
        _ => None,
    }
}
