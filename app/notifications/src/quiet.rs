//! Step 7 of 7: the quiet hours of a channel.

use chrono::{DateTime, TimeDelta, Utc};
use schedule::Timezone;

/// Minutes of a day.
const DAY: i32 = 24 * 60;

/// Hours of each local day at which no message is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuietSpan {
    /// The minute of the local day of their start.
    pub(crate) from: i32,
    /// The minute of their end; before `from`: of the next day.
    pub(crate) to: i32,
    pub(crate) timezone: Timezone,
}

impl QuietSpan {
    /// Whether a moment lies in them, by the local time.
    pub(crate) fn contains(&self, moment: DateTime<Utc>) -> bool {
        let local = moment + TimeDelta::seconds(self.timezone.offset_secs(moment).into());
        let minute = i32::try_from(local.timestamp().rem_euclid(i64::from(DAY) * 60) / 60).unwrap_or_default();
        if self.from <= self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }
}

/// The minute of the day of `HH:MM`.
pub(crate) fn parse_minute(text: &str) -> Option<i32> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str, below: i32| {
        let is_number = text.len() == 2 && text.bytes().all(|digit| digit.is_ascii_digit());
        text.parse::<i32>().ok().filter(|number| is_number && *number < below)
    };
    Some(number(hour, 24)? * 60 + number(minute, 60)?)
}

/// `HH:MM` of a minute of the day.
pub(crate) fn minute_text(minute: i32) -> String {
    format!("{:02}:{:02}", minute / 60, minute % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_quiet(from: &str, to: &str, moment: &str) -> bool {
        let timezone = schedule::parse_timezone("Europe/Paris").unwrap();
        let span = QuietSpan { from: parse_minute(from).unwrap(), to: parse_minute(to).unwrap(), timezone };
        span.contains(moment.parse().unwrap())
    }

    /// Paris is two hours ahead in summer, one in winter.
    #[test]
    fn quiet_hours_follow_the_local_time() {
        for (moment, quiet) in [
            ("2026-07-01T19:59:00Z", false),
            ("2026-07-01T20:00:00Z", true),
            ("2026-07-02T04:59:59Z", true),
            ("2026-07-02T05:00:00Z", false),
            ("2026-01-01T20:30:00Z", false),
            ("2026-01-01T21:00:00Z", true),
        ] {
            assert_eq!(is_quiet("22:00", "07:00", moment), quiet, "{moment}");
        }
        assert!(is_quiet("12:00", "13:00", "2026-01-01T11:30:00Z"));
        assert!(!is_quiet("12:00", "13:00", "2026-01-01T12:00:00Z"));
    }

    #[test]
    fn minutes_are_read_as_they_are_written() {
        for text in ["00:00", "07:05", "23:59"] {
            assert_eq!(parse_minute(text).map(minute_text).as_deref(), Some(text));
        }
        for text in ["24:00", "7:00", "12:60", "12", "", "+1:00", "12:0a"] {
            assert_eq!(parse_minute(text), None, "{text}");
        }
    }
}
