//! Compares with croner 4: the same times where both define a cron equally, and a list of the differences.

use chrono::{DateTime, Datelike, TimeDelta, TimeZone, Utc};
use proptest::{prelude::*, sample::select};
use schedule::{Cron, Timezone, ZoneSet};

/// croner's next times after an instant.
fn croner(text: &str, tz: Timezone, after: DateTime<Utc>, count: usize) -> Vec<DateTime<Utc>> {
    let cron: croner::Cron = text.parse().unwrap_or_else(|error| panic!("croner: {text}: {error}"));
    cron.iter_after(tz.from_utc_datetime(&after.naive_utc())).take(count).map(|time| time.to_utc()).collect()
}

fn ours(text: &str, tz: Timezone, after: DateTime<Utc>, count: usize) -> Vec<DateTime<Utc>> {
    let cron = Cron::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    cron.times_after(after, tz).take(count).collect()
}

fn local(times: &[DateTime<Utc>], tz: Timezone) -> Vec<String> {
    times.iter().map(|time| time.with_timezone(&tz).format("%m-%d %H:%M %z").to_string()).collect()
}

fn zone(name: &str) -> Timezone {
    name.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn field(min: u32, max: u32) -> BoxedStrategy<String> {
    let list = prop::collection::vec(min..=max, 1..4);
    let list = list.prop_map(|values| values.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
    let range = (min..=max, min..=max, 1..=4_u32).prop_map(|(a, b, step)| match step {
        1 => format!("{}-{}", a.min(b), a.max(b)),
        _ => format!("{}-{}/{step}", a.min(b), a.max(b)),
    });
    let step = (2..=(max / 2).max(2)).prop_map(|step| format!("*/{step}"));
    prop_oneof![3 => Just("*".to_owned()), 2 => list, 2 => range, 1 => step].boxed()
}

/// With only one of the two day fields restricted, both define the cron equally.
fn days() -> impl Strategy<Value = (String, String)> {
    let nearest = (1..=31).prop_map(|day| format!("{day}W"));
    let last = select(vec!["L".to_owned(), "LW".to_owned()]);
    let nth = (0..=6, 1..=5).prop_map(|(weekday, week)| format!("{weekday}#{week}"));
    let last_of = (0..=6).prop_map(|weekday| format!("{weekday}L"));
    let star = || "*".to_owned();
    prop_oneof![
        3 => field(1, 31).prop_map(move |dates| (dates, star())),
        3 => field(0, 6).prop_map(move |weekdays| (star(), weekdays)),
        1 => nearest.prop_map(move |dates| (dates, star())),
        1 => last.prop_map(move |dates| (dates, star())),
        1 => nth.prop_map(move |weekdays| (star(), weekdays)),
        1 => last_of.prop_map(move |weekdays| (star(), weekdays)),
        2 => (1..=31_u32, 0..=6_u32).prop_map(|(date, weekday)| (date.to_string(), weekday.to_string())),
    ]
}

fn cron() -> impl Strategy<Value = String> {
    let text = (field(0, 59), field(0, 23), days(), field(1, 12))
        .prop_map(|(minute, hour, (date, weekday), month)| format!("{minute} {hour} {date} {month} {weekday}"));
    text.prop_filter("never fires", |text| Cron::parse(text).is_ok())
}

fn instant() -> impl Strategy<Value = DateTime<Utc>> {
    (1_577_836_800_i64..2_145_916_800).prop_map(|seconds| DateTime::from_timestamp(seconds, 0).expect("a time"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn in_utc_both_name_the_same_times(text in cron(), after in instant()) {
        prop_assert_eq!(ours(&text, Timezone::UTC, after, 20), croner(&text, Timezone::UTC, after, 20), "{}", &text);
    }

    #[test]
    fn between_offset_changes_both_agree(
        text in cron(),
        tz in select(ZoneSet::bundled().names().map(zone).collect::<Vec<_>>()),
        after in instant(),
    ) {
        let offset = |at: DateTime<Utc>| *at.with_timezone(&tz).offset();
        let quiet = |until: DateTime<Utc>| {
            let days = (until - after).num_days() + 2;
            (-2..days).all(|day| offset(after + TimeDelta::days(day)) == offset(after))
        };
        let mut ours = ours(&text, tz, after, 10);
        ours.retain(|time| *time < after + TimeDelta::days(200) && quiet(*time));
        let mut croner = croner(&text, tz, after, ours.len());
        croner.truncate(ours.len());
        prop_assert_eq!(ours, croner, "{} in {}", &text, tz);
    }
}

/// croner 4.0.2 also fired at the end of the gap, at 03:00; 4.0.3 does not.
#[test]
fn a_job_before_a_gap_fires_once() {
    let new_york = zone("America/New_York");
    let after = "2026-03-08T05:00:00Z".parse().expect("a time");
    for times in [croner("30 1 * * *", new_york, after, 2), ours("30 1 * * *", new_york, after, 2)] {
        assert_eq!(local(&times, new_york), ["03-08 01:30 -0500", "03-09 01:30 -0400"]);
    }
}

/// In croner, the job fires at the end of the gap. Ours skips the time.
#[test]
fn croner_moves_times_out_of_gaps() {
    let paris = zone("Europe/Paris");
    let after = "2026-03-29T00:30:00Z".parse().expect("a time");
    assert_eq!(local(&croner("30 2 * * *", paris, after, 1), paris), ["03-29 03:00 +0200"]);
    assert_eq!(local(&ours("30 2 * * *", paris, after, 1), paris), ["03-30 02:30 +0200"]);
}

/// The hour is restricted, so in ours the job fires only in the first instance.
#[test]
fn croner_repeats_stepped_minutes_in_a_fold() {
    let paris = zone("Europe/Paris");
    let after = "2026-10-24T23:45:00Z".parse().expect("a time");
    assert_eq!(
        local(&croner("*/30 2 * * *", paris, after, 4), paris),
        ["10-25 02:00 +0200", "10-25 02:30 +0200", "10-25 02:00 +0100", "10-25 02:30 +0100"]
    );
    assert_eq!(
        local(&ours("*/30 2 * * *", paris, after, 3), paris),
        ["10-25 02:00 +0200", "10-25 02:30 +0200", "10-26 02:00 +0100"]
    );
}

#[test]
fn croner_matches_either_day_despite_a_star() {
    let after = "2026-04-01T12:00:00Z".parse().expect("a time");
    let days = |times: Vec<DateTime<Utc>>| times.iter().map(Datelike::day).collect::<Vec<_>>();
    // Vixie: the field begins with a star, so both must match.
    assert_eq!(days(ours("0 0 */2 * MON", Timezone::UTC, after, 2)), [13, 27]);
    assert_eq!(days(croner("0 0 */2 * MON", Timezone::UTC, after, 3)), [3, 5, 6]);
}

#[test]
fn croner_accepts_empty_list_items() {
    // croner would then search for seconds for a minute that does not exist, so the test requests no time.
    assert!(",, 15 * 7 * 7".parse::<croner::Cron>().is_ok());
    assert!(Cron::parse(",, 15 * 7 * 7").is_err());
}
