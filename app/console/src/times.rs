//! Times and durations, as people read them. Each time names its zone.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use schedule::parse_timezone;

/// A time in UTC: `2026-11-27 09:00 UTC`.
#[must_use]
pub fn in_utc(time: &DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M UTC").to_string()
}

/// The same, with seconds.
#[must_use]
pub fn in_utc_to_the_second(time: &DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// A time for `<time datetime>`, which scripts read.
#[must_use]
pub fn for_machines(time: &DateTime<Utc>) -> String {
    time.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time for a hidden field, to the millisecond.
#[must_use]
pub fn to_the_millisecond(time: &DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// The end of a selection that has all runs up to a time: the next millisecond.
#[must_use]
pub fn end_of_selection(time: &DateTime<Utc>) -> String {
    to_the_millisecond(&(*time + TimeDelta::milliseconds(1)))
}

/// A time in a zone: `Fri 2026-11-27 10:00 Europe/Paris`; in UTC if the zone is not known.
#[must_use]
pub fn in_zone(time: &DateTime<Utc>, zone: Option<&str>) -> String {
    let Some((name, zone)) = zone.and_then(|name| Some((name, parse_timezone(name).ok()?))) else {
        return time.format("%a %Y-%m-%d %H:%M UTC").to_string();
    };
    let local = *time + TimeDelta::seconds(zone.offset_secs(*time).into());
    format!("{} {name}", local.format("%a %Y-%m-%d %H:%M"))
}

/// How long ago, or in how long: `3 min ago`, `in 2 h`.
#[must_use]
pub fn relative(time: &DateTime<Utc>, now: &DateTime<Utc>) -> String {
    let away = *time - *now;
    let span = span(away.abs());
    if away > TimeDelta::zero() { format!("in {span}") } else { format!("{span} ago") }
}

/// A span in its largest unit: `45 s`, `3 min`, `2 h`, `9 days`.
#[must_use]
pub fn span(span: TimeDelta) -> String {
    let seconds = span.num_seconds();
    match seconds {
        ..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A duration in milliseconds: `850 ms`, `2.5 s`, `3 min`.
#[must_use]
pub fn milliseconds(duration: &i64) -> String {
    match *duration {
        duration @ ..1_000 => format!("{duration} ms"),
        duration @ 1_000..60_000 => format!("{}.{} s", duration / 1_000, duration % 1_000 / 100),
        duration => span(TimeDelta::milliseconds(duration)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn times_name_their_zone() {
        let noon = at("2026-03-29T01:30:00Z");
        assert_eq!(in_zone(&noon, Some("Europe/Paris")), "Sun 2026-03-29 03:30 Europe/Paris");
        assert_eq!(in_zone(&noon, None), "Sun 2026-03-29 01:30 UTC");
        assert_eq!(in_zone(&noon, Some("Nowhere/Else")), "Sun 2026-03-29 01:30 UTC");
        assert_eq!(in_utc(&noon), "2026-03-29 01:30 UTC");
        assert_eq!(for_machines(&noon), "2026-03-29T01:30:00Z");
        assert_eq!(to_the_millisecond(&noon), "2026-03-29T01:30:00.000Z");
    }

    #[test]
    fn spans_have_one_unit() {
        let now = at("2026-03-29T12:00:00Z");
        assert_eq!(relative(&at("2026-03-29T11:59:15Z"), &now), "45 s ago");
        assert_eq!(relative(&at("2026-03-29T14:30:00Z"), &now), "in 2 h");
        assert_eq!(relative(&at("2026-03-20T12:00:00Z"), &now), "9 days ago");
        assert_eq!(milliseconds(&850), "850 ms");
        assert_eq!(milliseconds(&2_540), "2.5 s");
        assert_eq!(milliseconds(&180_000), "3 min");
    }
}
