//! The scheduled time of fires and requests, as one UTC minute.

use chrono::{DateTime, Datelike, TimeDelta, Timelike, Utc};

use crate::field::{FIRST_YEAR, LAST_YEAR};

/// Why a text is not a scheduled time.
///
/// ```
/// use schedule::{TimeError, nominal_time};
/// assert_eq!(nominal_time("<aws.scheduler.scheduled-time>"), Err(TimeError::Placeholder));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// EventBridge did not replace its context attribute; "now" would be a guess.
    #[error("a placeholder that EventBridge did not replace, not a time")]
    Placeholder,
    /// Not RFC 3339.
    #[error("not an RFC 3339 time: write it as 2026-03-29T07:00:00Z")]
    Malformed,
    /// A second 60: some systems would store it as the next minute, others would not.
    #[error("second 60 is not accepted")]
    LeapSecond,
    /// A year that no cron of EventBridge can name.
    #[error("the year must be from 1970 to 2199")]
    OutOfRange,
}

/// Parses a scheduled time: RFC 3339 to UTC, rounded down to the minute.
///
/// All texts of a minute give the same key (product contract, "nominal time").
///
/// ```
/// use schedule::nominal_time;
/// let nine = nominal_time("2026-03-29T09:00:41.5+02:00")?;
/// assert_eq!(nine.to_string(), "2026-03-29 07:00:00 UTC");
/// # Ok::<(), schedule::TimeError>(())
/// ```
///
/// # Errors
///
/// Fails if the text is not RFC 3339, is a leap second, is a placeholder that EventBridge did not replace, or has a
/// year outside of 1970 to 2199.
pub fn nominal_time(raw: &str) -> Result<DateTime<Utc>, TimeError> {
    if raw.contains("<aws.") {
        return Err(TimeError::Placeholder);
    }
    let parsed = DateTime::parse_from_rfc3339(raw).map_err(|_| TimeError::Malformed)?;
    // chrono represents a leap second as a nanosecond count of a second or more.
    if parsed.nanosecond() >= 1_000_000_000 {
        return Err(TimeError::LeapSecond);
    }
    let utc = parsed.with_timezone(&Utc);
    if !(FIRST_YEAR..=LAST_YEAR).contains(&utc.year()) {
        return Err(TimeError::OutOfRange);
    }
    let past_the_minute =
        TimeDelta::seconds(i64::from(utc.second())) + TimeDelta::nanoseconds(i64::from(utc.nanosecond()));
    Ok(utc - past_the_minute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_a_minute_are_equal() {
        let spellings = [
            "2026-03-29T07:00:00Z",
            "2026-03-29T07:00:59.999999999Z",
            "2026-03-29t07:00:00z",
            "2026-03-29T09:00:00+02:00",
            "2026-03-28T19:00:30.5-12:00",
            "2026-03-29T12:30:00+05:30",
        ];
        for spelling in spellings {
            assert_eq!(nominal_time(spelling), nominal_time(spellings[0]), "{spelling}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for (raw, error) in [
            ("<aws.scheduler.scheduled-time>", TimeError::Placeholder),
            ("", TimeError::Malformed),
            ("2026-03-29", TimeError::Malformed),
            ("2026-03-29T07:00:00", TimeError::Malformed),
            ("2026-02-30T07:00:00Z", TimeError::Malformed),
            ("2026-03-29T24:00:00Z", TimeError::Malformed),
            ("2016-12-31T23:59:60Z", TimeError::LeapSecond),
            ("2026-03-29T07:00:60Z", TimeError::LeapSecond),
            ("1969-12-31T23:59:59Z", TimeError::OutOfRange),
            ("2200-01-01T00:00:00Z", TimeError::OutOfRange),
            ("9999-12-31T23:59:59Z", TimeError::OutOfRange),
            ("0000-01-01T00:00:00+23:59", TimeError::OutOfRange),
        ] {
            assert_eq!(nominal_time(raw), Err(error), "{raw}");
        }
    }
}
