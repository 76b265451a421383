//! Properties of every cron, every zone and every instant.

use chrono::{DateTime, Datelike as _, TimeDelta, Utc};
use proptest::{prelude::*, sample::select};
use schedule::{Coverage, Cron, Timezone, ZoneSet, compile_cron, nominal_time, parse_timezone};

const MONTHS: [&str; 12] = ["JAN", "feb", "Mar", "APR", "may", "Jun", "JUL", "aug", "Sep", "OCT", "nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["SUN", "mon", "Tue", "WED", "thu", "Fri", "SAT"];

/// One item of a list: value, range, step, and the special values of the field.
fn item(min: u32, max: u32, others: Vec<String>) -> BoxedStrategy<String> {
    let value = min..=max;
    let range = (min..=max, min..=max).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let step = 1..=(max - min).clamp(1, 20);
    let numbers = prop_oneof![
        4 => value.clone().prop_map(|value| value.to_string()),
        2 => range.clone().prop_map(|(a, b)| format!("{a}-{b}")),
        2 => (range, step.clone()).prop_map(|((a, b), step)| format!("{a}-{b}/{step}")),
        1 => (value, step.clone()).prop_map(|(value, step)| format!("{value}/{step}")),
        2 => step.prop_map(|step| format!("*/{step}")),
    ];
    if others.is_empty() { numbers.boxed() } else { prop_oneof![3 => numbers, 2 => select(others)].boxed() }
}

fn field(min: u32, max: u32, others: Vec<String>) -> impl Strategy<Value = String> {
    let list = prop::collection::vec(item(min, max, others), 1..4).prop_map(|items| items.join(","));
    prop_oneof![2 => Just("*".to_owned()), 3 => list]
}

fn month_day() -> impl Strategy<Value = String> {
    let nearest = (1..=31).map(|day| format!("{day}W"));
    field(1, 31, nearest.chain(["L".to_owned(), "lw".to_owned()]).collect())
}

fn weekday() -> impl Strategy<Value = String> {
    let names = WEEKDAYS.map(str::to_owned);
    let nth = (0..=7).flat_map(|day| (1..=5).map(move |week| format!("{day}#{week}")));
    let last = (0..=7).map(|day| format!("{day}L"));
    field(0, 7, names.into_iter().chain(nth).chain(last).collect())
}

/// Crons in the 5-field and the 7-field form; those that never fire are left out.
fn cron() -> impl Strategy<Value = Cron> {
    let months = field(1, 12, MONTHS.map(str::to_owned).to_vec());
    let fields = (field(0, 59, vec![]), field(0, 23, vec![]), month_day(), months, weekday());
    let years = prop_oneof![6 => Just(None), 1 => field(1970, 2199, vec![]).prop_map(Some)];
    let text = (fields, years).prop_map(|((minute, hour, month_day, month, weekday), year)| match year {
        None => format!("{minute} {hour} {month_day} {month} {weekday}"),
        Some(year) => format!("0 {minute} {hour} {month_day} {month} {weekday} {year}"),
    });
    text.prop_filter_map("never fires, or too long once written out", |text| match Cron::parse(&text) {
        Ok(cron) => Some(cron),
        Err(error) if matches!(error.code(), "never_fires" | "too_long") => None,
        Err(error) => panic!("{text}: {error}"),
    })
}

/// Crons at midnight, which only their days distinguish.
fn midnights() -> impl Strategy<Value = Cron> {
    let text = (month_day(), weekday()).prop_map(|(month_day, weekday)| format!("0 0 {month_day} * {weekday}"));
    text.prop_filter_map("never fires", |text| Cron::parse(&text).ok())
}

fn zone() -> impl Strategy<Value = Timezone> {
    let zones = ZoneSet::bundled();
    select(zones.names().filter_map(|name| zones.find(name)).collect::<Vec<_>>())
}

/// Between 2020 and 2037, on any second.
fn instant() -> impl Strategy<Value = DateTime<Utc>> {
    (1_577_836_800_i64..2_145_916_800).prop_map(|seconds| DateTime::from_timestamp(seconds, 0).expect("a time"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn canonical_text_parses_to_itself(cron in cron()) {
        let text = cron.to_string();
        prop_assert!(text.len() <= 256, "{text}");
        prop_assert_eq!(Cron::parse(&text), Ok(cron), "{}", &text);
        prop_assert_eq!(Cron::parse(&text).expect("a cron").to_string(), text);
    }

    #[test]
    fn times_strictly_increase_and_match(cron in cron(), tz in zone(), from in instant()) {
        let mut last = from;
        for time in cron.times_after(from, tz).take(40) {
            prop_assert!(time > last, "{cron} in {tz}: {time} after {last}");
            prop_assert!(cron.matches(time, tz), "{cron} in {tz}: {time}");
            last = time;
        }
    }

    #[test]
    fn nothing_between_two_times_matches(cron in cron(), tz in zone(), from in instant()) {
        let Some(first) = cron.next_after(from, tz) else { return Ok(()) };
        let second = cron.next_after(first, tz).unwrap_or(DateTime::<Utc>::MAX_UTC);
        let minutes = (1..1500).map(|minute| first + TimeDelta::minutes(minute)).take_while(|at| *at < second);
        for between in minutes {
            prop_assert!(!cron.matches(between, tz), "{cron} in {tz}: {between} between {first} and {second}");
        }
    }

    #[test]
    fn each_time_is_next_until_reached(cron in cron(), tz in zone(), from in instant()) {
        for (time, later) in cron.times_after(from, tz).zip(cron.times_after(from, tz).skip(1)).take(20) {
            prop_assert_eq!(cron.next_after(time, tz), Some(later));
            prop_assert_eq!(cron.next_after(later - TimeDelta::seconds(1), tz), Some(later));
        }
    }

    /// If its coverage is exact, the expression has no other time.
    #[test]
    fn compiled_expressions_have_every_due_time(cron in cron(), tz in zone(), from in instant()) {
        let compiled = compile_cron(&cron, tz);
        let expression = &compiled.expression;
        prop_assert!(expression.len() <= 256, "{expression}");
        prop_assert_eq!(expression.matches('?').count(), 1, "{}", expression);
        prop_assert_eq!(expression.split(' ').count(), 6, "{}", expression);
        let published = Cron::parse(expression).expect("EventBridge's own grammar");
        for time in cron.times_after(from, tz).take(20) {
            prop_assert!(published.matches(time, compiled.timezone), "{cron} in {tz}: {expression} lacks {time}");
        }
        if compiled.coverage == Coverage::Exact {
            for time in published.times_after(from, compiled.timezone).take(20) {
                prop_assert!(cron.matches(time, tz), "{cron} in {tz}: {expression} adds {time}");
            }
        }
    }

    #[test]
    fn a_superset_really_has_more(cron in midnights()) {
        let compiled = compile_cron(&cron, Timezone::UTC);
        if compiled.coverage == Coverage::Superset {
            let published = Cron::parse(&compiled.expression).expect("EventBridge's own grammar");
            // The calendar repeats after 28 years.
            let from = "2026-01-01T00:00:00Z".parse().expect("a time");
            let mut times = published.times_after(from, Timezone::UTC).take(28 * 366);
            prop_assert!(times.any(|time| !cron.matches(time, Timezone::UTC)), "{cron}: {} adds nothing", compiled.expression);
        }
    }

    #[test]
    fn arbitrary_text_causes_no_panic(text in ".{0,60}", tz in "[A-Za-z_/ +0-9-]{0,55}") {
        let _ = Cron::parse(&text).map(|cron| cron.describe_times());
        let _ = parse_timezone(&tz).map_err(|error| error.to_string());
        let _ = nominal_time(&text);
    }

    #[test]
    fn text_near_a_cron_causes_no_panic(text in "(cron\\()?[0-9*/,#?LWlwa-z@-]{0,6}( [0-9*/,#?LWJANSUN-]{0,6}){0,6}\\)?") {
        if let Ok(cron) = Cron::parse(&text) {
            prop_assert_eq!(Cron::parse(&cron.to_string()), Ok(cron));
            prop_assert!(!cron.describe_times().is_empty());
        }
    }
}

proptest! {
    // A case compares 28 years, after which the calendar repeats.
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn same_times_are_equal_on_all_dates(one in midnights(), other in midnights()) {
        let from = "2001-01-01T00:00:00Z".parse().expect("a time");
        let times = |cron: &Cron| cron.times_after(from, Timezone::UTC).take_while(|at| at.year() < 2029).collect::<Vec<_>>();
        prop_assert_eq!(one.has_same_times(&other), times(&one) == times(&other), "{} and {}", one, other);
        prop_assert!(one.has_same_times(&one));
    }
}
