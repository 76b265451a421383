//! Checks what `compile` promises for generated crons, zones and days near clock changes, with the stand-in's
//! evaluator.
//!
//! `fold = first` is EventBridge's documented rule: if an hour comes twice, only the first instance fires. So a due
//! time at a second instance is not expected of EventBridge; the watchdog catches it up. Under `both` it is expected.

use std::ops::RangeInclusive;

use chrono::{DateTime, LocalResult, TimeDelta, TimeZone as _, Utc};
use proptest::prelude::*;
use proptest::sample::select;
use schedule::{Compiled, Coverage, Cron, Timezone, compile_cron, parse_timezone};
use stand_in::scheduler::clock_change::Fold;
use stand_in::scheduler::expression::Expression;
use stand_in::scheduler::zone::Zone;
use stand_in::scheduler::zone_files::ZoneFiles;

/// How many times of each cron are compared.
const TIMES: usize = 30;

/// Clock changes at midnight, of half an hour, around Ramadan, in the southern spring, and zones without changes.
const ZONES: [&str; 12] = [
    "UTC",
    "America/New_York",
    "Europe/Paris",
    "Australia/Lord_Howe",
    "America/Santiago",
    "America/Havana",
    "America/St_Johns",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Gaza",
    "Asia/Kolkata",
    "Pacific/Chatham",
];

fn numbers(limits: RangeInclusive<u32>) -> impl Strategy<Value = String> {
    let (low, high) = (*limits.start(), *limits.end());
    let range = (limits.clone(), limits.clone()).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let item = prop_oneof![
        4 => limits.prop_map(|value| value.to_string()),
        2 => range.clone().prop_map(|(a, b)| format!("{a}-{b}")),
        1 => (range, 1..8_u32.min(high - low)).prop_map(|((a, b), step)| format!("{a}-{b}/{step}")),
        2 => (1..20_u32.min(high - low)).prop_map(|step| format!("*/{step}")),
    ];
    prop_oneof![2 => Just("*".to_owned()), 4 => prop::collection::vec(item, 1..4).prop_map(|items| items.join(","))]
}

fn days() -> impl Strategy<Value = String> {
    prop_oneof![5 => numbers(1..=31), 1 => select(vec!["L", "LW", "15W", "1W", "31W", "?"]).prop_map(str::to_owned)]
}

fn weekdays() -> impl Strategy<Value = String> {
    let special = select(vec!["5L", "0L", "1#1", "5#5", "MON-FRI", "SUN,WED", "1#2,3#4"]).prop_map(str::to_owned);
    prop_oneof![2 => Just("*".to_owned()), 4 => numbers(0..=6), 2 => special]
}

fn cron() -> impl Strategy<Value = Cron> {
    let text = (numbers(0..=59), numbers(0..=23), days(), numbers(1..=12), weekdays())
        .prop_map(|(minute, hour, day, month, weekday)| format!("{minute} {hour} {day} {month} {weekday}"));
    text.prop_filter_map("never fires, or too long once written out", |text| Cron::parse(&text).ok())
}

/// A day near a clock change in some zone: from March to April, or from September to November.
fn near_a_change() -> impl Strategy<Value = DateTime<Utc>> {
    let month = select(vec![3, 4, 9, 10, 11]);
    (2020..2038, month, 1..29_u32, 0..24_u32).prop_map(|(year, month, day, hour)| {
        Utc.with_ymd_and_hms(year, month, day, hour, 0, 0).single().expect("a day that there is")
    })
}

/// Whether this local time occurs twice, and this is the second instance.
fn is_second_instance(time: &DateTime<Utc>, tz: Timezone) -> bool {
    match tz.from_local_datetime(&time.with_timezone(&tz).naive_local()) {
        LocalResult::Ambiguous(_, second) => second == *time,
        LocalResult::Single(_) | LocalResult::None => false,
    }
}

fn has_open_hour(cron: &Cron) -> bool {
    cron.to_string().split(' ').rev().nth(3) == Some("*")
}

/// The times that EventBridge would fire, according to the stand-in's evaluator.
fn fired(compiled: &Compiled, start: DateTime<Utc>, fold: Fold) -> impl Iterator<Item = DateTime<Utc>> {
    let expression = Expression::parse(&compiled.expression).expect("AWS would take it");
    let zone = Zone::by_name(compiled.timezone.name(), &ZoneFiles::bundled()).expect("AWS would take it");
    let mut last = start;
    std::iter::from_fn(move || {
        last = expression.next_after(last, last, &zone, fold)?;
        Some(last)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn exact_and_superset_fire_as_declared(
        cron in cron(),
        zone in select(ZONES.to_vec()),
        start in near_a_change(),
    ) {
        let tz = parse_timezone(zone).expect("a timezone");
        let compiled = compile_cron(&cron, tz);
        match compiled.coverage {
            Coverage::Exact => exact(&cron, tz, &compiled, start)?,
            Coverage::Superset => superset(&cron, tz, &compiled, start)?,
        }
    }
}

fn exact(cron: &Cron, tz: Timezone, compiled: &Compiled, start: DateTime<Utc>) -> Result<(), TestCaseError> {
    // In UTC no local time occurs twice, so no time is left out there.
    let left_out = |time: &DateTime<Utc>| is_second_instance(time, compiled.timezone);
    let due: Vec<_> = cron.times_after(start, tz).filter(|time| !left_out(time)).take(TIMES).collect();
    let first: Vec<_> = fired(compiled, start, Fold::First).take(TIMES).collect();
    prop_assert_eq!(due, first, "{} in {}: {}", cron, tz, compiled.expression);

    let due: Vec<_> = cron.times_after(start, tz).take(TIMES).collect();
    let both = fired(compiled, start, Fold::Both).filter(|time| has_open_hour(cron) || !left_out(time));
    let both: Vec<_> = both.take(TIMES).collect();
    prop_assert_eq!(due, both, "{} in {} through both: {}", cron, tz, compiled.expression);
    Ok(())
}

fn superset(cron: &Cron, tz: Timezone, compiled: &Compiled, start: DateTime<Utc>) -> Result<(), TestCaseError> {
    for time in cron.times_after(start, tz).take(TIMES) {
        let before = time - TimeDelta::minutes(1);
        prop_assert_eq!(fired(compiled, before, Fold::Both).next(), Some(time), "{} in {}", cron, tz);
        if !is_second_instance(&time, compiled.timezone) {
            prop_assert_eq!(fired(compiled, before, Fold::First).next(), Some(time), "{} in {}", cron, tz);
        }
    }
    Ok(())
}
