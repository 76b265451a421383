//! Parses text to a [`Cron`]: 5, 6 or 7 fields, macros, and EventBridge's `cron(...)`.

use std::str::FromStr;

use crate::{
    Cron, CronError,
    bits::Bits,
    days::{Days, MonthDays, Rule, Weekdays},
    error::Code,
    field::{self, EVENTBRIDGE_WEEKDAY, Field, HOUR, MINUTE, MONTH, MONTH_DAY, SECOND, WEEKDAY, YEAR},
    item::{self, Values},
    mistake,
};

/// The limit in characters, for the input and for the canonical text.
const MAX_LENGTH: usize = 256;

const MACROS: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// A field's text and the byte at which it begins.
type Token<'a> = (&'a str, usize);

impl Cron {
    /// Parses a cron: 5 fields, 6 with seconds first, 7 with the year last, a macro, or `cron(...)`.
    ///
    /// ```
    /// use schedule::Cron;
    /// assert_eq!(Cron::parse("@daily")?.to_string(), "0 0 * * *");
    /// assert_eq!(Cron::parse("0 30 6 L * ? 2030")?.to_string(), "0 30 6 L * * 2030");
    /// # Ok::<(), schedule::CronError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the field and the reason; see [`CronError::code`]. A cron that names no day of the years 1970 to 2199 is
    /// refused as `never_fires`.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        cron(text).map_err(|error| {
            let is_too_long = error.code() == "too_long";
            let advice = if is_too_long { None } else { mistake::explain_mistake(text) };
            error.with_advice(advice)
        })
    }
}

impl FromStr for Cron {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        Self::parse(text)
    }
}

/// Parses any accepted form of a cron.
fn cron(input: &str) -> Result<Cron, CronError> {
    if input.chars().nth(MAX_LENGTH).is_some() {
        let reason = format!("{} characters; a cron has at most {MAX_LENGTH}", input.chars().count());
        return Err(CronError::of_whole_cron(Code::TooLong, reason));
    }
    let text = input.trim_ascii();
    let start = input.len() - input.trim_ascii_start().len();
    let cron = match form(text)? {
        Form::Bare(bare) => bare_fields(&tokens(bare, start))?,
        Form::EventBridge(inner) => eventbridge_fields(&tokens(inner, start + "cron(".len()))?,
    };
    check(cron)
}

enum Form<'a> {
    Bare(&'a str),
    /// The text between the brackets of `cron(...)`.
    EventBridge(&'a str),
}

fn form(text: &str) -> Result<Form<'_>, CronError> {
    if text.starts_with('@') {
        let expansion = MACROS.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
        return expansion.map(|(_, fields)| Form::Bare(fields)).ok_or_else(|| unsupported_macro(text));
    }
    if let Some(inner) = strip_call(text, "cron(") {
        let inner = inner.strip_suffix(')').ok_or_else(|| {
            CronError::of_whole_cron(Code::WrongFieldCount, "cron(...) must end with its closing bracket")
        })?;
        return Ok(Form::EventBridge(inner));
    }
    if strip_call(text, "rate(").is_some() {
        let reason = "rate(...) counts from its creation, not by the clock; write a cron, such as */5 * * * *";
        return Err(CronError::of_whole_cron(Code::UnsupportedExpression, reason));
    }
    if strip_call(text, "at(").is_some() {
        let reason = "at(...) fires once; write a cron with its year, such as 0 30 9 31 12 * 2030";
        return Err(CronError::of_whole_cron(Code::UnsupportedExpression, reason));
    }
    Ok(Form::Bare(text))
}

fn strip_call<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(name.len())?;
    head.eq_ignore_ascii_case(name).then_some(rest)
}

fn unsupported_macro(text: &str) -> CronError {
    let reason = if text.eq_ignore_ascii_case("@reboot") {
        "@reboot is not supported: write a cron".to_owned()
    } else {
        let names: Vec<_> = MACROS.iter().map(|(name, _)| *name).collect();
        format!("{} is not one of {}", text.escape_debug(), names.join(", "))
    };
    CronError::of_whole_cron(Code::UnsupportedMacro, reason)
}

/// The fields between blanks, with their positions in the input.
fn tokens(text: &str, start: usize) -> Vec<Token<'_>> {
    text.split_ascii_whitespace()
        .map(|token| (token, start + (token.as_ptr() as usize - text.as_ptr() as usize)))
        .collect()
}

/// Minute, hour, day, month, weekday; six fields have seconds first, seven also have the year last.
fn bare_fields(tokens: &[Token<'_>]) -> Result<Cron, CronError> {
    let (seconds, five, year) = match tokens {
        five if five.len() == 5 => (None, five, None),
        [seconds, five @ ..] if five.len() == 5 => (Some(seconds), five, None),
        [seconds, five @ .., year] if five.len() == 5 => (Some(seconds), five, Some(year)),
        _ => return Err(wrong_count(tokens.len())),
    };
    if let Some(&seconds) = seconds {
        on_the_minute(seconds)?;
    }
    let &[minute, hour, month_day, month, weekday] = five else { return Err(wrong_count(tokens.len())) };
    let years = year.map_or(Ok(YEAR.all_values()), |&year| plain(&YEAR, year))?;
    Ok(Cron {
        minutes: plain(&MINUTE, minute)?.low_bits(),
        hours: plain(&HOUR, hour)?.low_bits(),
        days: {
            let month_days = item::parse_list(&MONTH_DAY, month_day)?;
            let weekdays = item::parse_list(&WEEKDAY, weekday)?;
            if month_days.question && weekdays.question {
                let reason = "? is already in the day-of-month field; write * here";
                return Err(CronError::of_field(&WEEKDAY, weekday.1, reason));
            }
            if seconds.is_some() && month_days.question {
                weekdays_by_name(weekday)?;
            }
            days(&month_days, &weekdays)
        },
        months: plain(&MONTH, month)?.low_bits(),
        years,
    })
}

/// Refuses a number for a weekday in Quartz's form (seconds first and `?`), because Sunday is 1 there.
fn weekdays_by_name(weekday: Token<'_>) -> Result<(), CronError> {
    // A number after `#` counts weeks, and after `/` it is a step.
    let day = |item: &str| item.split(['#', '/']).next().is_some_and(|day| day.contains(|c: char| c.is_ascii_digit()));
    if !weekday.0.split(',').any(day) {
        return Ok(());
    }
    let reason = "a weekday's number is 0 to 6 here and 1 to 7 in Quartz: write its name, such as FRI";
    Err(CronError::of_field(&WEEKDAY, weekday.1, reason))
}

/// EventBridge's six: minute, hour, day, month, weekday from 1 = Sunday, year.
fn eventbridge_fields(tokens: &[Token<'_>]) -> Result<Cron, CronError> {
    let &[minute, hour, month_day, month, weekday, year] = tokens else {
        let reason = format!(
            "{} in cron(...); it has 6: minute hour day-of-month month day-of-week year",
            counted(tokens.len())
        );
        return Err(CronError::of_whole_cron(Code::WrongFieldCount, reason));
    };
    Ok(Cron {
        minutes: plain(&MINUTE, minute)?.low_bits(),
        hours: plain(&HOUR, hour)?.low_bits(),
        days: {
            let month_days = item::parse_list(&MONTH_DAY, month_day)?;
            let weekdays = item::parse_list(&EVENTBRIDGE_WEEKDAY, weekday)?;
            if month_days.question == weekdays.question {
                let reason = "in cron(...), exactly one of the two day fields must be ?";
                return Err(CronError::of_field(&EVENTBRIDGE_WEEKDAY, weekday.1, reason));
            }
            days(&month_days, &weekdays)
        },
        months: plain(&MONTH, month)?.low_bits(),
        years: plain(&YEAR, year)?,
    })
}

fn plain(field: &'static Field, token: Token<'_>) -> Result<Bits, CronError> {
    item::parse_list(field, token).map(|values| values.plain)
}

fn on_the_minute(seconds: Token<'_>) -> Result<(), CronError> {
    if plain(&SECOND, seconds)? == Bits::from_range(0, 0) {
        return Ok(());
    }
    let reason = "EventBridge fires on the minute, so only 0 is possible";
    Err(CronError::of_field(&SECOND, seconds.1, reason).with_code(Code::SubMinuteUnsupported))
}

/// Vixie's rule: if either field begins with `*`, both must match; else one match is enough.
fn days(month_days: &Values, weekdays: &Values) -> Days {
    let rule = if month_days.starred || weekdays.starred { Rule::Both } else { Rule::Either };
    let month_days = MonthDays { plain: month_days.plain.low_bits() as u32, ..month_days.month_days };
    let weekdays = Weekdays { plain: weekdays.plain.low_bits() as u8, ..weekdays.weekdays };
    Days { month_days, weekdays, rule }.into_normal_form()
}

fn wrong_count(count: usize) -> CronError {
    let reason = format!(
        "{}; a cron has 5 (minute hour day-of-month month day-of-week), 6 with seconds first, or 7 with the year last",
        counted(count)
    );
    CronError::of_whole_cron(Code::WrongFieldCount, reason)
}

fn counted(count: usize) -> String {
    if count == 1 { "1 field".to_owned() } else { format!("{count} fields") }
}

/// Checks that need no clock: it fires in some year, and its text can be stored.
fn check(cron: Cron) -> Result<Cron, CronError> {
    if !cron.has_a_day() {
        let reason = format!("no day from {} to {} matches, so it never fires", field::FIRST_YEAR, field::LAST_YEAR);
        return Err(CronError::of_whole_cron(Code::NeverFires, reason));
    }
    let length = cron.to_string().len();
    if length > MAX_LENGTH {
        let reason = format!("{length} characters in the canonical form; a cron has at most {MAX_LENGTH}");
        return Err(CronError::of_whole_cron(Code::TooLong, reason));
    }
    Ok(cron)
}
