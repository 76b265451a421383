//! The period of a list: the last hours, or from a time to a time, as the address has it.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

use crate::failure::Failure;
use crate::form::parse_time;

/// A period; what is absent has no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Period {
    /// Its begin.
    pub from: Option<DateTime<Utc>>,
    /// Its end, exclusive.
    pub to: Option<DateTime<Utc>>,
}

impl Period {
    /// Reads the fields of a form. A begin counts more than `hours`.
    ///
    /// # Errors
    /// Refuses what is not a time, or not a number of hours.
    pub(crate) fn parse(hours: &str, from: &str, to: &str, now: DateTime<Utc>) -> Result<Self, Failure> {
        let (from, to) = (parse_time("from", from)?, parse_time("to", to)?);
        if from.is_some() || hours.is_empty() {
            return Ok(Self { from, to });
        }
        let hours = hours.parse().ok().filter(|hours| (1..=8_784).contains(hours));
        let hours = hours.ok_or_else(|| Failure::of_field("hours", "hours must be a number from 1 to 8784"))?;
        Ok(Self { from: Some(now - TimeDelta::hours(hours)), to })
    }

    /// The begin, for the API.
    pub(crate) fn begin_text(self) -> String {
        self.from.map(|time| rfc3339(&time)).unwrap_or_default()
    }

    /// The end, for the API.
    pub(crate) fn end_text(self) -> String {
        self.to.map(|time| rfc3339(&time)).unwrap_or_default()
    }
}

/// A time, for the API: to the microsecond, as the database has it.
pub(crate) fn rfc3339(time: &DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// A time for `<input type="datetime-local">`, in UTC; nothing if the text is not a time.
pub(crate) fn for_input(text: &str) -> String {
    let time = parse_time("", text).ok().flatten();
    time.map(|time| time.format("%Y-%m-%dT%H:%M").to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_begin_counts_more_than_hours() {
        let now: DateTime<Utc> = "2026-03-29T12:00:00Z".parse().unwrap();
        let of = |hours, from, to| Period::parse(hours, from, to, now).unwrap();
        assert_eq!(of("24", "", "").begin_text(), "2026-03-28T12:00:00Z");
        assert_eq!(of("24", "2026-03-01T08:00", "").begin_text(), "2026-03-01T08:00:00Z");
        assert_eq!(of("", "", "2026-03-01T10:00:00+02:00").end_text(), "2026-03-01T08:00:00Z");
        assert_eq!(of("", "", ""), Period::default());
        for (hours, from) in [("x", ""), ("0", ""), ("", "yesterday")] {
            assert!(Period::parse(hours, from, "", now).is_err(), "{hours} {from}");
        }
    }

    #[test]
    fn inputs_have_no_zone() {
        assert_eq!(for_input("2026-03-01T10:00:00+02:00"), "2026-03-01T08:00");
        assert_eq!((for_input(""), for_input("soon")), (String::new(), String::new()));
    }
}
