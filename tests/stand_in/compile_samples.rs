//! Two independent evaluators must agree: `schedule` on a cron's due times, the stand-in on what AWS would fire.

use chrono::{DateTime, TimeDelta, Utc};
use schedule::{Compiled, Coverage, Cron, Timezone, compile_cron, parse_timezone};
use stand_in::scheduler::clock_change::Fold;
use stand_in::scheduler::expression::Expression;
use stand_in::scheduler::zone::Zone;
use stand_in::scheduler::zone_files::ZoneFiles;

const MINUTES: [&str; 6] = ["*", "0", "*/7", "5,20,59", "10-40/5", "3/10"];
const HOURS: [&str; 6] = ["*", "2", "1,2,3", "0-23/4", "22,2", "1-5"];
const DAYS: [&str; 9] = ["*", "1", "31", "L", "15W", "LW", "*/2", "1-7", "?"];
const MONTHS: [&str; 5] = ["*", "2", "JAN,JUL", "*/3", "10-11"];
const WEEKDAYS: [&str; 8] = ["*", "1", "5L", "1#2", "MON-FRI", "0,6", "FRI-MON", "7"];

/// In each of these, the clocks change within the first days.
const STARTS: [&str; 3] = ["2026-03-06T00:00:00Z", "2026-03-27T00:00:00Z", "2026-10-24T00:00:00Z"];
const ZONES: [&str; 5] = ["UTC", "America/New_York", "Europe/Paris", "Australia/Lord_Howe", "Asia/Kolkata"];

/// How many times of each cron are compared.
const TIMES: usize = 40;

/// Every `step`-th of all combinations of the fields above.
fn crons(step: usize) -> impl Iterator<Item = (bool, Cron)> {
    let all = MINUTES.iter().flat_map(|minute| HOURS.iter().map(move |hour| (minute, hour)));
    let all = all.flat_map(|(minute, hour)| DAYS.iter().map(move |day| (minute, hour, day)));
    let all = all.flat_map(|(minute, hour, day)| MONTHS.iter().map(move |month| (minute, hour, day, month)));
    let all = all.flat_map(|(minute, hour, day, month)| {
        WEEKDAYS.iter().map(move |weekday| (*hour == "*", format!("{minute} {hour} {day} {month} {weekday}")))
    });
    // A cron for a day that does not exist is refused; all others here are valid.
    all.step_by(step).filter_map(|(open_hour, text)| Some((open_hour, Cron::parse(&text).ok()?)))
}

fn fires_after(compiled: &Compiled, instant: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let expression = Expression::parse(&compiled.expression).expect("AWS would take it");
    let zone = Zone::by_name(compiled.timezone.name(), &ZoneFiles::bundled()).expect("AWS would take it");
    expression.next_after(instant, instant, &zone, Fold::First)
}

#[test]
fn exact_expressions_fire_at_due_times_only() {
    let mut compared = 0;
    for (number, (open_hour, cron)) in crons(7).enumerate() {
        let tz = parse_timezone(ZONES[number % ZONES.len()]).unwrap();
        let start: DateTime<Utc> = STARTS[number % STARTS.len()].parse().unwrap();
        let compiled = compile_cron(&cron, tz);
        // AWS does not document what an open hour does in a fold; the watchdog decides the times that AWS does not
        // fire.
        let is_fold_near = start.format("%m").to_string() == "10" || tz.name() == "Australia/Lord_Howe";
        if compiled.coverage == Coverage::Superset || (open_hour && compiled.timezone != Timezone::UTC && is_fold_near)
        {
            continue;
        }
        let due: Vec<_> = cron.times_after(start, tz).take(TIMES).collect();
        let fired = std::iter::successors(fires_after(&compiled, start), |at| fires_after(&compiled, *at));
        assert_eq!(due, fired.take(TIMES).collect::<Vec<_>>(), "{cron} in {tz}: {}", compiled.expression);
        compared += 1;
    }
    assert!(compared > 500, "{compared} crons compared");
}

#[test]
fn a_superset_fires_at_each_due_time() {
    let mut compared = 0;
    for (number, (open_hour, cron)) in crons(11).enumerate() {
        let tz = parse_timezone(ZONES[number % ZONES.len()]).unwrap();
        let start: DateTime<Utc> = STARTS[number % STARTS.len()].parse().unwrap();
        let compiled = compile_cron(&cron, tz);
        if compiled.coverage == Coverage::Exact || (open_hour && compiled.timezone != Timezone::UTC) {
            continue;
        }
        for due in cron.times_after(start, tz).take(TIMES) {
            let fired = fires_after(&compiled, due - TimeDelta::minutes(1));
            assert_eq!(fired, Some(due), "{cron} in {tz}: {}", compiled.expression);
        }
        compared += 1;
    }
    assert!(compared > 100, "{compared} crons compared");
}
