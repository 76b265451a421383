//! Step 5 of 7: the expressions of a schedule, and their next times.
//!
//! cronbox itself publishes only `cron(...)`; `at(...)` and `rate(...)` are for other clients.

use chrono::{DateTime, DurationRound, NaiveDateTime, TimeDelta, Utc};

use super::clock_change::Fold;
use super::cron::Cron;
use super::zone::Zone;

/// A schedule expression that EventBridge Scheduler accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// `cron(minutes hours day-of-month month day-of-week year)`
    Cron(Cron),
    /// `at(yyyy-mm-ddThh:mm:ss)`, in the schedule's timezone
    At(NaiveDateTime),
    /// `rate(value unit)`: elapsed time, also across a change of the offset
    Rate(TimeDelta),
}

impl Expression {
    /// Parses an expression; `None` if AWS answers `Invalid Schedule Expression`.
    pub fn parse(text: &str) -> Option<Expression> {
        let (kind, rest) = text.split_once('(')?;
        let inner = rest.strip_suffix(')')?;
        match kind {
            "cron" => Cron::parse(inner).map(Expression::Cron),
            "at" if inner.len() == "yyyy-mm-ddThh:mm:ss".len() => {
                NaiveDateTime::parse_from_str(inner, "%Y-%m-%dT%H:%M:%S").ok().map(Expression::At)
            }
            "rate" => parse_rate(inner).map(Expression::Rate),
            _ => None,
        }
    }

    /// Whether it names any time, past or future: 30 February never does.
    pub fn has_a_time(&self) -> bool {
        match self {
            Expression::Cron(cron) => cron.has_a_date(),
            Expression::At(_) => true,
            Expression::Rate(interval) => DateTime::UNIX_EPOCH.checked_add_signed(*interval).is_some(),
        }
    }

    /// Returns the first time strictly after `instant`; a rate counts from `origin`.
    pub fn next_after(
        &self,
        instant: DateTime<Utc>,
        origin: DateTime<Utc>,
        zone: &Zone,
        fold: Fold,
    ) -> Option<DateTime<Utc>> {
        match self {
            Expression::Cron(cron) => cron.next_after(instant, zone, fold),
            Expression::At(wall) => Fold::First.fire_times(*wall, zone).find(|at| *at > instant),
            Expression::Rate(_) if instant < origin => Some(origin),
            Expression::Rate(interval) => {
                let passed = (instant - origin).num_milliseconds() / interval.num_milliseconds();
                TimeDelta::try_milliseconds(interval.num_milliseconds().checked_mul(passed + 1)?)
                    .and_then(|ahead| origin.checked_add_signed(ahead))
            }
        }
    }

    /// Returns since when a schedule created at `now` is evaluated: a rate fires at once, anything else only in the
    /// future.
    pub fn first_evaluated_after(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        match self {
            Expression::Rate(_) => now - TimeDelta::milliseconds(1),
            Expression::Cron(_) | Expression::At(_) => now,
        }
    }

    /// Returns from when a rate counts: its `StartDate`, whose seconds AWS discards, else its creation.
    pub fn rate_origin(now: DateTime<Utc>, start_date: Option<DateTime<Utc>>) -> DateTime<Utc> {
        start_date.map_or(now, |start| start.duration_trunc(TimeDelta::minutes(1)).unwrap_or(start))
    }
}

fn parse_rate(text: &str) -> Option<TimeDelta> {
    let (value, unit) = text.split_once(' ')?;
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value: i64 = value.parse().ok().filter(|value| *value > 0)?;
    match unit {
        "minute" | "minutes" => TimeDelta::try_minutes(value),
        "hour" | "hours" => TimeDelta::try_hours(value),
        "day" | "days" => TimeDelta::try_days(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::zone_files::ZoneFiles;

    fn zone(name: &str) -> Zone {
        Zone::by_name(name, &ZoneFiles::bundled()).unwrap()
    }

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    /// AWS was seen to reject these.
    #[test]
    fn expressions_that_aws_rejects_are_rejected() {
        for text in [
            "cron()",
            "cron(INVALID)",
            "cron(0 1 * * * *)",
            "cron(7 20 * * NOT *)",
            "cron(71 8 1 * ? *)",
            "rate(10 seconds)",
            "rate(30 seconds)",
            "rate(10 years)",
            "rate(10)",
            "rate(10 minutess)",
            "rate(-10 minutes)",
            "rate( 10 minutes )",
            "rate(0 minutes)",
            " rate(10 minutes)",
            "at(2021-12-31)",
            "at(2021-12-31T23:59:59Z)",
            "at(2021-12-31T23:59)",
            "CRON(0 9 * * ? *)",
            "0 9 * * *",
            "",
        ] {
            assert_eq!(Expression::parse(text), None, "{text}");
        }
    }

    /// The day of a clock change has 23 hours, and the rate counts 24.
    #[test]
    fn rates_fire_at_once_and_count_time() {
        let rate = Expression::parse("rate(1 day)").unwrap();
        let made = at("2026-03-07T12:00:30Z");
        let zone = &zone("America/New_York");
        let first = rate.next_after(rate.first_evaluated_after(made), made, zone, Fold::First).unwrap();
        assert_eq!(first, made);
        assert_eq!(rate.next_after(first, made, zone, Fold::First), Some(at("2026-03-08T12:00:30Z")));
    }

    #[test]
    fn at_has_one_time_in_its_timezone() {
        let once = Expression::parse("at(2026-07-01T09:30:00)").unwrap();
        let made = at("2026-06-01T00:00:00Z");
        let zone = &zone("Europe/Paris");
        let fire = once.next_after(made, made, zone, Fold::First);
        assert_eq!(fire, Some(at("2026-07-01T07:30:00Z")));
        assert_eq!(once.next_after(fire.unwrap(), made, zone, Fold::First), None);
    }

    #[test]
    fn at_follows_clock_changes_like_a_cron() {
        let made = at("2026-01-01T00:00:00Z");
        let zone = &zone("Europe/Paris");
        let fire = |text: &str| Expression::parse(text).unwrap().next_after(made, made, zone, Fold::Both);
        assert_eq!(fire("at(2026-03-29T02:30:00)"), None, "this time does not exist");
        assert_eq!(fire("at(2026-10-25T02:30:00)"), Some(at("2026-10-25T00:30:00Z")), "the first of the two");
    }
}
