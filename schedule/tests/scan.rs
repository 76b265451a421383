//! Compares the evaluator with a scan of every minute around the offset changes, in every zone.
//!
//! The scan has no rules for gaps and folds: it follows elapsed time, and a local time is a repetition if it is not
//! later than the latest one before it. It shares no code with the evaluator.

use std::fmt::Write as _;

use chrono::{DateTime, Datelike, NaiveDateTime, Offset, TimeDelta, TimeZone, Timelike, Utc};
use schedule::{Cron, Timezone, ZoneSet};

/// How many windows of a zone the quick test checks, and how many crons in each.
const WINDOWS: usize = 3;
const CRONS: usize = 12;

#[test]
fn every_zone_agrees_with_the_scan() {
    let mut random = Random(20_260_329);
    let mut pairs = 0;
    for tz in all_zones() {
        let changes = changes(tz);
        for _ in 0..WINDOWS {
            let window = Window::around(tz, random.pick(&changes));
            for _ in 0..CRONS {
                agree(&window, &GeneratedCron::near(&window, &mut random));
                pairs += 1;
            }
        }
    }
    assert!(pairs >= 20_000, "only {pairs} pairs");
}

/// Two million pairs take minutes, so run it by name: `cargo test --release -- --ignored`.
#[test]
#[ignore = "minutes of work"]
fn every_change_agrees_with_the_scan() {
    let mut random = Random(7);
    let mut pairs = 0;
    while pairs < 2_000_000 {
        for tz in all_zones() {
            for change in changes(tz) {
                let window = Window::around(tz, change);
                for _ in 0..4 * CRONS {
                    agree(&window, &GeneratedCron::near(&window, &mut random));
                    pairs += 1;
                }
            }
        }
    }
}

/// These zones change, for example, at midnight, by half an hour, or for Ramadan. Every third change is compared.
#[test]
fn unusual_changes_agree_with_the_scan() {
    let odd = [
        "America/Santiago",
        "Australia/Lord_Howe",
        "Pacific/Apia",
        "Africa/Casablanca",
        "Africa/Cairo",
        "Asia/Gaza",
        "Asia/Kolkata",
        "America/St_Johns",
        "Pacific/Chatham",
        "America/Havana",
    ];
    let mut random = Random(42);
    for name in odd {
        let tz: Timezone = name.parse().expect("a zone");
        for change in changes(tz).into_iter().step_by(3) {
            let window = Window::around(tz, change);
            for _ in 0..CRONS {
                agree(&window, &GeneratedCron::near(&window, &mut random));
            }
        }
    }
}

#[test]
fn days_that_a_zone_skipped_never_fire() {
    // Samoa skipped 30 December 2011.
    let apia = zone("Pacific/Apia");
    let window = Window::around(apia, "2011-12-30T10:00:00Z".parse().expect("a time"));
    let mut random = Random(30);
    for _ in 0..100 {
        agree(&window, &GeneratedCron::near(&window, &mut random));
    }
    let noon = Cron::parse("0 12 29-31 12 *").expect("a cron");
    let days: Vec<_> = noon
        .times_after("2011-12-28T00:00:00Z".parse().expect("a time"), apia)
        .take(2)
        .map(|time| time.with_timezone(&apia).day())
        .collect();
    assert_eq!(days, [29, 31]);
}

fn zone(name: &str) -> Timezone {
    name.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn all_zones() -> impl Iterator<Item = Timezone> {
    let zones = ZoneSet::bundled();
    let names: Vec<_> = zones.names().map(str::to_owned).collect();
    names.into_iter().map(|name| zone(&name))
}

/// Compares next and matches with the scan over the complete window.
fn agree(window: &Window, generated: &GeneratedCron) {
    let cron = Cron::parse(&generated.text).unwrap_or_else(|error| panic!("{}: {error}", generated.text));
    let context = || format!("{} in {} from {}", generated.text, window.tz, window.start);
    let scanned: Vec<_> =
        window.minutes.iter().filter(|minute| generated.fires(minute)).map(|minute| minute.utc).collect();

    let after = window.start - TimeDelta::seconds(1);
    let forwards: Vec<_> = cron.times_after(after, window.tz).take_while(|time| *time <= window.end()).collect();
    assert_eq!(forwards, scanned, "next: {}", context());

    for minute in window.minutes.iter().step_by(61) {
        assert_eq!(
            cron.matches(minute.utc, window.tz),
            generated.fires(minute),
            "{} matches: {}",
            minute.utc,
            context()
        );
        assert!(!cron.matches(minute.utc + TimeDelta::seconds(1), window.tz));
    }
    for time in scanned {
        assert!(cron.matches(time, window.tz), "{time} matches: {}", context());
    }
}

/// Every minute from a day before an offset change to a day after it.
struct Window {
    tz: Timezone,
    start: DateTime<Utc>,
    minutes: Vec<Minute>,
    /// The local time just before the change.
    change: NaiveDateTime,
}

struct Minute {
    utc: DateTime<Utc>,
    local: NaiveDateTime,
    weekday: u32,
    is_repeated: bool,
}

impl Window {
    fn around(tz: Timezone, change: DateTime<Utc>) -> Self {
        let start = change - TimeDelta::hours(27);
        let mut latest = NaiveDateTime::MIN;
        let minutes = (0..54 * 60)
            .map(|minutes| {
                let utc = start + TimeDelta::minutes(minutes);
                let local = utc.naive_utc() + offset(tz, utc);
                let is_repeated = local <= latest;
                latest = latest.max(local);
                Minute { utc, local, weekday: local.weekday().num_days_from_sunday(), is_repeated }
            })
            .collect();
        let change = (change - TimeDelta::minutes(1)).with_timezone(&tz).naive_local();
        Self { tz, start, minutes, change }
    }

    fn end(&self) -> DateTime<Utc> {
        self.minutes.last().map_or(self.start, |minute| minute.utc)
    }
}

/// The instants at which a zone's offset changes, 2020 to 2037; a day of July if it never does.
fn changes(tz: Timezone) -> Vec<DateTime<Utc>> {
    let week = TimeDelta::weeks(1);
    let start: DateTime<Utc> = "2020-01-01T00:00:00Z".parse().expect("a time");
    let weeks = std::iter::successors(Some(start), |at| Some(*at + week)).take(18 * 52);
    let mut found: Vec<_> = weeks
        .filter(|at| offset(tz, *at) != offset(tz, *at + week))
        .map(|at| change_within(tz, at, at + week))
        .collect();
    if found.is_empty() {
        found.push("2026-07-14T12:00:00Z".parse().expect("a time"));
    }
    found
}

fn change_within(tz: Timezone, mut before: DateTime<Utc>, mut after: DateTime<Utc>) -> DateTime<Utc> {
    while after - before > TimeDelta::minutes(1) {
        let middle = before + TimeDelta::minutes((after - before).num_minutes() / 2);
        if offset(tz, before) == offset(tz, middle) {
            before = middle;
        } else {
            after = middle;
        }
    }
    after
}

fn offset(tz: Timezone, at: DateTime<Utc>) -> TimeDelta {
    TimeDelta::seconds(i64::from(tz.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc()))
}

/// A cron as text, and as tables of the values that its fields name.
struct GeneratedCron {
    text: String,
    minutes: Vec<bool>,
    hours: Vec<bool>,
    month_days: Vec<bool>,
    months: Vec<bool>,
    weekdays: Vec<bool>,
    both_days: bool,
    /// Every hour is named.
    is_open: bool,
}

impl GeneratedCron {
    /// A cron whose times are probably near the change.
    fn near(window: &Window, random: &mut Random) -> Self {
        let hour = (window.change.hour() + random.below(4) + 23) % 24;
        let (minute_text, minutes) = random.minute_field();
        let (hour_text, hours) = random.field(0, 23, hour);
        let (month_day_text, month_days) = random.day_field(1, 31, window.change.day());
        let (month_text, months) = random.day_field(1, 12, window.change.month());
        let (weekday_text, weekdays) = random.day_field(0, 6, window.change.weekday().num_days_from_sunday());
        Self {
            text: format!("{minute_text} {hour_text} {month_day_text} {month_text} {weekday_text}"),
            both_days: month_day_text.starts_with('*') || weekday_text.starts_with('*'),
            is_open: hours.iter().all(|named| *named),
            minutes,
            hours,
            month_days,
            months,
            weekdays,
        }
    }

    fn fires(&self, minute: &Minute) -> bool {
        let local = minute.local;
        if local.second() != 0 || !self.minutes[local.minute() as usize] || !self.hours[local.hour() as usize] {
            return false;
        }
        let by_date = self.month_days[local.day() as usize];
        let by_weekday = self.weekdays[minute.weekday as usize];
        let day = if self.both_days { by_date && by_weekday } else { by_date || by_weekday };
        day && self.months[local.month() as usize] && (self.is_open || !minute.is_repeated)
    }
}

/// A small generator of its own, so that a seed in a failure message always gives the same crons.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32 % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }

    /// Rarely open, because a thousand times in a window prove little more than ten.
    fn minute_field(&mut self) -> (String, Vec<bool>) {
        let minute = self.below(60);
        if self.below(8) == 0 {
            return self.field(0, 59, minute);
        }
        let other = self.below(60);
        ((format!("{minute},{other}")), (0..60).map(|value| value == minute || value == other).collect())
    }

    /// Mostly open.
    fn day_field(&mut self, min: u32, max: u32, near: u32) -> (String, Vec<bool>) {
        if self.below(3) > 0 { ("*".to_owned(), vec![true; max as usize + 1]) } else { self.field(min, max, near) }
    }

    fn field(&mut self, min: u32, max: u32, near: u32) -> (String, Vec<bool>) {
        let mut named = vec![false; max as usize + 1];
        let mut text = String::new();
        let step = 1 + self.below(max.min(9));
        let (first, last, step) = match self.below(5) {
            0 => (min, max, 1),
            1 => (min, max, step),
            2 => (near, near, 1),
            3 => (near.saturating_sub(2).max(min), (near + 2).min(max), 1),
            _ => (near, max, step),
        };
        match (first == min && last == max, step) {
            (true, 1) => text.push('*'),
            (true, step) => write!(text, "*/{step}").expect("a string"),
            (false, 1) => write!(text, "{first}-{last}").expect("a string"),
            (false, step) => write!(text, "{first}-{last}/{step}").expect("a string"),
        }
        for value in (first..=last).step_by(step as usize) {
            named[value as usize] = true;
        }
        if self.below(4) == 0 {
            let extra = min + self.below(max - min + 1);
            write!(text, ",{extra}").expect("a string");
            named[extra as usize] = true;
        }
        if min == 1 {
            // There is no day and no month 0, so mark it named: the check for open fields then depends on the others.
            named[0] = true;
        }
        (text, named)
    }
}
