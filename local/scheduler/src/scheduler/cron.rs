//! Step 5 of 7: EventBridge's `cron(...)`, evaluated literally.
//!
//! Six fields, as AWS documents them: minutes, hours, day of month, month, day of week (1-7 is SUN-SAT), year.
//! Deliberately small and written separately from the crate `schedule`, so that each checks the other.

use chrono::{DateTime, Datelike, DurationRound, NaiveDate, NaiveDateTime, TimeDelta, Utc};

use super::clock_change::Fold;
use super::zone::Zone;

/// The six fields of a `cron(...)`, as sets of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    pub(super) minutes: u64,
    pub(super) hours: u64,
    pub(super) day: Day,
    pub(super) months: u64,
    pub(super) years: Vec<bool>,
}

/// The one day field that is not `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Day {
    OfMonth { days: u64, last: bool, nearest_weekday_to: u64 },
    OfWeek { weekdays: u64, last: u64 },
    Nth { weekday: u32, nth: u32 },
}

/// The first year of AWS's grammar.
pub(super) const FIRST_YEAR: i32 = 1970;
pub(super) const LAST_YEAR: i32 = 2199;

/// The longest fold that is considered; Lord Howe's is half an hour, most are one hour.
const LONGEST_FOLD: TimeDelta = TimeDelta::hours(3);

impl Cron {
    /// Returns the first time strictly after `instant`, on the clocks of `zone`.
    ///
    /// A time in a spring gap is skipped, as AWS documents.
    pub fn next_after(&self, instant: DateTime<Utc>, zone: &Zone, fold: Fold) -> Option<DateTime<Utc>> {
        let here = zone.wall_time(instant);
        match fold {
            // First instances are in the order of local times, so the first one after `instant` is the result.
            Fold::First => self.wall_times(here).flat_map(|wall| fold.fire_times(wall, zone)).find(|at| *at > instant),
            Fold::Both => self.next_of_both(instant, here, zone),
        }
    }

    /// Whether any date matches, past or future.
    pub fn has_a_date(&self) -> bool {
        self.dates(NaiveDate::default()).next().is_some()
    }

    /// With both instances, local times are not in the order of instants, so take the earliest around the first match.
    fn next_of_both(&self, instant: DateTime<Utc>, here: NaiveDateTime, zone: &Zone) -> Option<DateTime<Utc>> {
        let mut best: Option<(NaiveDateTime, DateTime<Utc>)> = None;
        for wall in self.wall_times(here - LONGEST_FOLD) {
            if best.is_some_and(|(found, _)| wall > found + LONGEST_FOLD) {
                break;
            }
            for at in Fold::Both.fire_times(wall, zone).filter(|at| *at > instant) {
                best = Some(best.map_or((wall, at), |(found, least)| (found, least.min(at))));
            }
        }
        best.map(|(_, at)| at)
    }

    /// The matching minutes of local time from `start`'s minute on.
    fn wall_times(&self, start: NaiveDateTime) -> impl Iterator<Item = NaiveDateTime> + '_ {
        let first_minute = start.duration_trunc(TimeDelta::minutes(1)).unwrap_or(start);
        self.dates(start.date()).flat_map(|date| self.minutes_of(date)).skip_while(move |wall| *wall < first_minute)
    }

    fn dates(&self, start: NaiveDate) -> impl Iterator<Item = NaiveDate> + '_ {
        let first = (start.year(), start.month());
        let years = start.year().max(FIRST_YEAR)..=LAST_YEAR;
        years
            .filter(|year| self.years[(*year - FIRST_YEAR) as usize])
            .flat_map(|year| (1..=12).map(move |month| (year, month)))
            .filter(move |(year, month)| (*year, *month) >= first && has(self.months, *month))
            .flat_map(|(year, month)| self.day.dates(year, month))
            .filter(move |date| *date >= start)
    }

    fn minutes_of(&self, date: NaiveDate) -> impl Iterator<Item = NaiveDateTime> + '_ {
        (0..24)
            .filter(|hour| has(self.hours, *hour))
            .flat_map(|hour| (0..60).map(move |minute| (hour, minute)))
            .filter(|(_, minute)| has(self.minutes, *minute))
            .filter_map(move |(hour, minute)| date.and_hms_opt(hour, minute, 0))
    }
}

impl Day {
    /// The matching days of one month, in order.
    fn dates(&self, year: i32, month: u32) -> impl Iterator<Item = NaiveDate> + '_ {
        (1..=31).filter_map(move |day| NaiveDate::from_ymd_opt(year, month, day)).filter(|date| self.matches(*date))
    }

    fn matches(&self, date: NaiveDate) -> bool {
        let weekday = date.weekday().num_days_from_sunday() + 1;
        match *self {
            Day::OfMonth { days, last, nearest_weekday_to } => {
                has(days, date.day())
                    || (last && date.day() == length(date))
                    || (1..=31).any(|day| has(nearest_weekday_to, day) && nearest_weekday(date, day) == Some(date))
            }
            Day::OfWeek { weekdays, last } => {
                has(weekdays, weekday) || (has(last, weekday) && date.day() + 7 > length(date))
            }
            Day::Nth { weekday: wanted, nth } => weekday == wanted && (date.day() - 1) / 7 + 1 == nth,
        }
    }
}

/// `3W`: the weekday nearest to the 3rd, without leaving the month.
fn nearest_weekday(month: NaiveDate, day: u32) -> Option<NaiveDate> {
    let date = month.with_day(day)?;
    let away = match date.weekday() {
        chrono::Weekday::Sat if day > 1 => -1,
        chrono::Weekday::Sat => 2,
        chrono::Weekday::Sun if day < length(date) => 1,
        chrono::Weekday::Sun => -2,
        _ => 0,
    };
    Some(date + TimeDelta::days(away))
}

fn length(date: NaiveDate) -> u32 {
    u32::from(date.num_days_in_month())
}

fn has(set: u64, value: u32) -> bool {
    set & (1 << value) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::zone_files::ZoneFiles;

    fn cron(text: &str) -> Cron {
        Cron::parse(text).unwrap_or_else(|| panic!("{text} must parse"))
    }

    fn fires(text: &str, tz: &str, from: &str, count: usize, fold: Fold) -> Vec<String> {
        let (cron, zone) = (cron(text), &Zone::by_name(tz, &ZoneFiles::bundled()).unwrap());
        let start: DateTime<Utc> = from.parse().unwrap();
        std::iter::successors(cron.next_after(start, zone, fold), |at| cron.next_after(*at, zone, fold))
            .take(count)
            .map(|at| at.format("%FT%RZ").to_string())
            .collect()
    }

    #[test]
    fn times_in_a_gap_are_skipped() {
        let fires = fires("30 2 * * ? *", "America/New_York", "2026-03-07T00:00:00Z", 3, Fold::First);
        assert_eq!(fires, ["2026-03-07T07:30Z", "2026-03-09T06:30Z", "2026-03-10T06:30Z"]);
    }

    /// At the first of the two instances.
    #[test]
    fn times_in_a_fold_fire_once() {
        let daily = fires("30 1 * * ? *", "America/New_York", "2026-11-01T00:00:00Z", 2, Fold::First);
        assert_eq!(daily, ["2026-11-01T05:30Z", "2026-11-02T06:30Z"]);
        let half_hourly = fires("0/30 * * * ? *", "America/New_York", "2026-11-01T04:59:00Z", 5, Fold::First);
        assert_eq!(
            half_hourly,
            ["2026-11-01T05:00Z", "2026-11-01T05:30Z", "2026-11-01T07:00Z", "2026-11-01T07:30Z", "2026-11-01T08:00Z"],
            "literally read, the repeated hour is silent"
        );
    }

    #[test]
    fn fold_both_fires_both_in_order() {
        let fires = fires("0/30 * * * ? *", "America/New_York", "2026-11-01T05:10:00Z", 4, Fold::Both);
        assert_eq!(fires, ["2026-11-01T05:30Z", "2026-11-01T06:00Z", "2026-11-01T06:30Z", "2026-11-01T07:00Z"]);
        let lord_howe =
            super::tests::fires("45 1 * * ? *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", 3, Fold::Both);
        assert_eq!(lord_howe, ["2026-04-04T14:45Z", "2026-04-04T15:15Z", "2026-04-05T15:15Z"]);
    }

    #[test]
    fn days_are_found_by_every_documented_form() {
        let from = "2026-01-01T00:00:00Z";
        assert_eq!(
            fires("0 0 L 2 ? *", "UTC", from, 3, Fold::First),
            ["2026-02-28T00:00Z", "2027-02-28T00:00Z", "2028-02-29T00:00Z"]
        );
        assert_eq!(fires("0 0 ? * 6L *", "UTC", from, 2, Fold::First), ["2026-01-30T00:00Z", "2026-02-27T00:00Z"]);
        assert_eq!(fires("0 0 ? * 3#2 *", "UTC", from, 2, Fold::First), ["2026-01-13T00:00Z", "2026-02-10T00:00Z"]);
        assert_eq!(
            fires("0 0 1W * ? *", "UTC", "2026-07-31T00:00:00Z", 2, Fold::First),
            ["2026-08-03T00:00Z", "2026-09-01T00:00Z"]
        );
        assert_eq!(fires("0 0 31W * ? *", "UTC", "2026-05-01T00:00:00Z", 1, Fold::First), ["2026-05-29T00:00Z"]);
        assert_eq!(fires("0 0 ? * 1 2028", "UTC", from, 1, Fold::First), ["2028-01-02T00:00Z"]);
    }

    #[test]
    fn spent_crons_have_no_next_time() {
        assert_eq!(fires("0 0 30 2 ? *", "UTC", "2026-01-01T00:00:00Z", 1, Fold::First), [""; 0]);
        assert_eq!(fires("0 0 1 1 ? 2020", "UTC", "2026-01-01T00:00:00Z", 1, Fold::First), [""; 0]);
    }
}
