//! Times as people write and read them.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Days, NaiveTime, SecondsFormat, TimeDelta, Utc};
use clap::{Args, ValueEnum};
use schedule::Clock;

/// A length of time: `90s`, `30m`, `24h`, `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) TimeDelta);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is no length of time: write 90s, 30m, 24h or 7d");
        let unit = text.chars().last().ok_or_else(wrong)?;
        let number: i64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| wrong())?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            _ => return Err(wrong()),
        };
        let span = number.checked_mul(seconds).and_then(TimeDelta::try_seconds).ok_or_else(wrong)?;
        if number < 0 { Err(wrong()) } else { Ok(Self(span)) }
    }
}

/// An instant: RFC 3339, `now`, `today`, `yesterday`, `monday`, or a length of time before now (`-24h`) or after it (`+2h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instant(pub(crate) DateTime<Utc>);

impl FromStr for Instant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_instant(text, Clock::System.now()).map(Self)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rfc3339(self.0))
    }
}

fn parse_instant(text: &str, now: DateTime<Utc>) -> Result<DateTime<Utc>, String> {
    let midnight = now.with_time(NaiveTime::MIN).single().unwrap_or(now);
    let shift = |rest: &str| rest.parse::<Span>().map(|span| span.0);
    match text.to_lowercase().as_str() {
        "now" => Ok(now),
        "today" => Ok(midnight),
        "yesterday" => Ok(midnight - Days::new(1)),
        "tomorrow" => Ok(midnight + Days::new(1)),
        word => match (word.strip_prefix('-'), word.strip_prefix('+'), weekday(word)) {
            (Some(rest), ..) => Ok(now - shift(rest)?),
            (_, Some(rest), _) => Ok(now + shift(rest)?),
            (.., Some(day)) => Ok(next_midnight_of(day, midnight)),
            _ => text.parse().map_err(|_| {
                format!("{text} is no time: write 2026-03-02T09:00:00Z, today, yesterday, monday, -24h or +2h")
            }),
        },
    }
}

fn weekday(word: &str) -> Option<chrono::Weekday> {
    (word.len() >= 3).then(|| word.parse().ok()).flatten()
}

/// The next midnight, in UTC, with which this day begins.
fn next_midnight_of(day: chrono::Weekday, midnight: DateTime<Utc>) -> DateTime<Utc> {
    use chrono::Datelike as _;
    let ahead = (7 + day.num_days_from_monday() - midnight.weekday().num_days_from_monday()) % 7;
    midnight + Days::new(if ahead == 0 { 7 } else { u64::from(ahead) })
}

/// A span of the past, for lists.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Past {
    /// The last so many hours or days: 24h, 7d.
    #[arg(long, value_name = "SPAN", conflicts_with_all = ["from", "to"])]
    pub(crate) last: Option<Span>,
    /// From this time on: RFC 3339, yesterday, -24h.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) from: Option<Instant>,
    /// Before this time: RFC 3339, today, -1h.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) to: Option<Instant>,
}

impl Past {
    /// The first and the last bound, if they are named.
    pub(crate) fn bounds(&self, now: DateTime<Utc>) -> (Option<DateTime<Utc>>, Option<DateTime<Utc>>) {
        let from = self.last.map(|span| now - span.0).or(self.from.map(|from| from.0));
        (from, self.to.map(|to| to.0))
    }

    /// The parameters of a list.
    pub(crate) fn query(&self, now: DateTime<Utc>) -> Vec<(&'static str, String)> {
        let (from, to) = self.bounds(now);
        let named = [("from", from), ("to", to)];
        named.into_iter().filter_map(|(name, time)| Some((name, rfc3339(time?)))).collect()
    }
}

/// How times are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Times {
    /// For example `in 3 h`; on a terminal, unless another form is chosen
    #[default]
    Relative,
    /// In UTC
    Utc,
}

impl Times {
    /// A time in this form.
    pub(crate) fn show(self, time: DateTime<Utc>, now: DateTime<Utc>) -> String {
        match self {
            Self::Relative => relative(time, now),
            Self::Utc => time.to_rfc3339_opts(SecondsFormat::Secs, true),
        }
    }
}

fn relative(time: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let span = in_words((time - now).abs());
    match time.cmp(&now) {
        std::cmp::Ordering::Greater => format!("in {span}"),
        _ if span == "0 s" => "now".to_owned(),
        _ => format!("{span} ago"),
    }
}

/// A length of time in its largest unit, with two units below ten of it.
pub(crate) fn in_words(span: TimeDelta) -> String {
    let seconds = span.num_seconds();
    let (large, unit, small, small_unit) = match seconds {
        ..60 => return format!("{seconds} s"),
        60..3_600 => (seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => (seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => (seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    };
    if large < 10 && small > 0 { format!("{large} {unit} {small} {small_unit}") } else { format!("{large} {unit}") }
}

/// The time as the API reads it.
pub(crate) fn rfc3339(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// A duration in milliseconds, for a column.
pub(crate) fn duration(ms: Option<i64>) -> String {
    match ms {
        None => String::new(),
        Some(ms @ ..10_000) => format!("{ms} ms"),
        Some(ms) => in_words(TimeDelta::milliseconds(ms)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let now: DateTime<Utc> = "2026-03-04T08:30:00Z".parse().unwrap();
        for (text, expected) in [
            ("now", "2026-03-04T08:30:00Z"),
            ("today", "2026-03-04T00:00:00Z"),
            ("Yesterday", "2026-03-03T00:00:00Z"),
            ("-24h", "2026-03-03T08:30:00Z"),
            ("+90m", "2026-03-04T10:00:00Z"),
            ("monday", "2026-03-09T00:00:00Z"),
            ("wed", "2026-03-11T00:00:00Z"),
            ("2026-03-01T00:00:00+01:00", "2026-02-28T23:00:00Z"),
        ] {
            assert_eq!(parse_instant(text, now).map(rfc3339), Ok(expected.to_owned()), "{text}");
        }
        for text in ["24h", "soon", "-", "+h", "2026-03-01", "--1h"] {
            assert!(parse_instant(text, now).is_err(), "{text}");
        }
    }

    #[test]
    fn spans_have_one_unit() {
        assert_eq!("24h".parse(), Ok(Span(TimeDelta::days(1))));
        for text in ["", "h", "24", "24 h", "1w", "-1h", "99999999999999999d", "1é"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn relative_times_are_short() {
        let now: DateTime<Utc> = "2026-03-04T08:30:00Z".parse().unwrap();
        for (time, expected) in [
            ("2026-03-04T08:30:00Z", "now"),
            ("2026-03-04T08:29:50Z", "10 s ago"),
            ("2026-03-04T08:32:05Z", "in 2 min 5 s"),
            ("2026-03-04T11:30:00Z", "in 3 h"),
            ("2026-02-01T08:30:00Z", "31 d ago"),
        ] {
            assert_eq!(relative(time.parse().unwrap(), now), expected);
        }
    }
}
