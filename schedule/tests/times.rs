//! The times of crons around offset changes, by zone.

use chrono::{DateTime, Utc};
use schedule::{Cron, Timezone};

fn instant(text: &str) -> DateTime<Utc> {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn zone(name: &str) -> Timezone {
    name.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// The next `count` local times after an instant, with their offsets.
fn times(cron: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let cron = Cron::parse(cron).unwrap_or_else(|error| panic!("{cron}: {error}"));
    let tz: Timezone = zone.parse().unwrap_or_else(|error| panic!("{error}"));
    let times = cron.times_after(instant(after), tz);
    times.take(count).map(|time| time.with_timezone(&tz).format("%m-%d %H:%M %z").to_string()).collect()
}

#[test]
fn times_in_the_gap_are_skipped() {
    // Europe/Paris, 29 March 2026: 02:00 becomes 03:00.
    assert_eq!(
        times("30 2 * * *", "Europe/Paris", "2026-03-27T12:00:00Z", 3),
        ["03-28 02:30 +0100", "03-30 02:30 +0200", "03-31 02:30 +0200"]
    );
    // The hour before and the hour after fire once each.
    assert_eq!(
        times("30 1,3 * * *", "Europe/Paris", "2026-03-28T12:00:00Z", 3),
        ["03-29 01:30 +0100", "03-29 03:30 +0200", "03-30 01:30 +0200"]
    );
    // An open hour continues: 01:30, and half an hour later it is 03:00.
    assert_eq!(
        times("*/30 * * * *", "Europe/Paris", "2026-03-29T00:15:00Z", 3),
        ["03-29 01:30 +0100", "03-29 03:00 +0200", "03-29 03:30 +0200"]
    );
}

/// The first instance of the hour fires.
#[test]
fn fixed_hours_fire_once_in_a_fold() {
    // Europe/Paris, 25 October 2026: 03:00 becomes 02:00.
    assert_eq!(
        times("30 2 * * *", "Europe/Paris", "2026-10-24T12:00:00Z", 2),
        ["10-25 02:30 +0200", "10-26 02:30 +0100"]
    );
    assert_eq!(
        times("0,30 2,3 * * *", "Europe/Paris", "2026-10-24T12:00:00Z", 4),
        ["10-25 02:00 +0200", "10-25 02:30 +0200", "10-25 03:00 +0100", "10-25 03:30 +0100"]
    );
    // Every minute of a restricted hour still fires once.
    assert_eq!(
        times("*/20 1-4 * * *", "America/New_York", "2026-11-01T05:00:00Z", 4),
        ["11-01 01:20 -0400", "11-01 01:40 -0400", "11-01 02:00 -0500", "11-01 02:20 -0500"]
    );
}

/// From the second instance of the hour on, no time is left on this day.
#[test]
fn second_instances_of_fixed_hours_never_fire() {
    for after in ["2026-10-25T00:30:00Z", "2026-10-25T00:59:00Z", "2026-10-25T01:10:00Z", "2026-10-25T01:30:00Z"] {
        assert_eq!(times("30 2 * * *", "Europe/Paris", after, 1), ["10-26 02:30 +0100"], "{after}");
    }
}

#[test]
fn open_hours_fire_in_both_instances() {
    assert_eq!(
        times("*/30 * * * *", "Europe/Paris", "2026-10-24T23:45:00Z", 5),
        ["10-25 02:00 +0200", "10-25 02:30 +0200", "10-25 02:00 +0100", "10-25 02:30 +0100", "10-25 03:00 +0100"]
    );
    // First the complete first instance, then the second, although 02:10 is earlier on the clock than 02:50.
    assert_eq!(
        times("10,50 * 25 10 *", "Europe/Paris", "2026-10-25T00:00:00Z", 4),
        ["10-25 02:10 +0200", "10-25 02:50 +0200", "10-25 02:10 +0100", "10-25 02:50 +0100"]
    );
}

#[test]
fn santiago_changes_at_midnight() {
    // 6 September 2026: 00:00 becomes 01:00; the day has no midnight.
    assert_eq!(
        times("0 0 * * *", "America/Santiago", "2026-09-05T12:00:00Z", 2),
        ["09-07 00:00 -0300", "09-08 00:00 -0300"]
    );
    // 5 April 2026: 00:00 becomes 23:00 of the day before.
    assert_eq!(
        times("30 23 * * *", "America/Santiago", "2026-04-04T12:00:00Z", 2),
        ["04-04 23:30 -0300", "04-05 23:30 -0400"]
    );
    assert_eq!(
        times("30 * 4 4 *", "America/Santiago", "2026-04-05T02:00:00Z", 2),
        ["04-04 23:30 -0300", "04-04 23:30 -0400"]
    );
}

#[test]
fn lord_howe_moves_by_half_an_hour() {
    // 5 April 2026: 02:00 becomes 01:30. 4 October 2026: 02:00 becomes 02:30.
    assert_eq!(
        times("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", 2),
        ["04-05 01:45 +1100", "04-06 01:45 +1030"]
    );
    assert_eq!(
        times("45 * * * *", "Australia/Lord_Howe", "2026-04-04T14:00:00Z", 3),
        ["04-05 01:45 +1100", "04-05 01:45 +1030", "04-05 02:45 +1030"]
    );
    assert_eq!(
        times("15,45 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", 3),
        ["10-04 02:45 +1100", "10-05 02:15 +1100", "10-05 02:45 +1100"]
    );
}

#[test]
fn apia_skipped_a_whole_day() {
    assert_eq!(
        times("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", 3),
        ["12-29 12:00 -1000", "12-31 12:00 +1400", "01-01 12:00 +1400"]
    );
    assert_eq!(
        times("0 12 * * 5", "Pacific/Apia", "2011-12-28T00:00:00Z", 1),
        ["01-06 12:00 +1400"],
        "that Friday, the 30th, never was"
    );
}

#[test]
fn casablanca_goes_back_for_ramadan() {
    // 15 February 2026: 03:00 becomes 02:00. 22 March 2026: 02:00 becomes 03:00.
    assert_eq!(
        times("30 2 * * *", "Africa/Casablanca", "2026-02-14T12:00:00Z", 2),
        ["02-15 02:30 +0100", "02-16 02:30 +0000"]
    );
    assert_eq!(times("30 2 * * *", "Africa/Casablanca", "2026-03-21T12:00:00Z", 1), ["03-23 02:30 +0100"]);
}

#[test]
fn cairo_gaza_and_havana_change_around_midnight() {
    // Cairo, Friday 24 April 2026: 00:00 becomes 01:00. Friday 30 October: 00:00 becomes Thursday 23:00.
    assert_eq!(times("0 0 * * *", "Africa/Cairo", "2026-04-23T12:00:00Z", 1), ["04-25 00:00 +0300"]);
    assert_eq!(
        times("30 23 * * 4", "Africa/Cairo", "2026-10-29T12:00:00Z", 2),
        ["10-29 23:30 +0300", "11-05 23:30 +0200"]
    );
    // Gaza, Saturday 28 March 2026: 02:00 becomes 03:00.
    assert_eq!(times("15 2 * * *", "Asia/Gaza", "2026-03-27T12:00:00Z", 1), ["03-29 02:15 +0300"]);
    // Havana, Sunday 2 November 2025: 01:00 becomes 00:00, so midnight comes twice.
    assert_eq!(
        times("0 0 * * *", "America/Havana", "2025-11-01T12:00:00Z", 2),
        ["11-02 00:00 -0400", "11-03 00:00 -0500"]
    );
    assert_eq!(
        times("0 * * * 0", "America/Havana", "2025-11-02T03:30:00Z", 3),
        ["11-02 00:00 -0400", "11-02 00:00 -0500", "11-02 01:00 -0500"]
    );
}

/// These offsets have a half or a quarter of an hour.
#[test]
fn fractional_offsets_keep_local_times() {
    assert_eq!(times("0 9 * * *", "Asia/Kolkata", "2026-05-01T00:00:00Z", 1), ["05-01 09:00 +0530"]);
    assert_eq!(times("30 2 * * *", "America/St_Johns", "2026-03-07T12:00:00Z", 1), ["03-09 02:30 -0230"]);
    // Chatham, 27 September 2026: 02:45 becomes 03:45.
    assert_eq!(times("0 3 * * *", "Pacific/Chatham", "2026-09-26T00:00:00Z", 1), ["09-28 03:00 +1345"]);
}

#[test]
fn matches_follows_the_rules_of_folds() {
    let paris = zone("Europe/Paris");
    let fixed = Cron::parse("30 2 * * *").expect("a cron");
    assert!(fixed.matches(instant("2026-10-25T00:30:00Z"), paris));
    assert!(!fixed.matches(instant("2026-10-25T01:30:00Z"), paris), "the second instance");
    let open = Cron::parse("30 * * * *").expect("a cron");
    assert!(open.matches(instant("2026-10-25T00:30:00Z"), paris));
    assert!(open.matches(instant("2026-10-25T01:30:00Z"), paris));
    assert!(!open.matches(instant("2026-10-25T01:30:01Z"), paris), "not a whole minute");
}

#[test]
fn times_are_from_1970_to_2199() {
    let yearly = Cron::parse("@yearly").expect("a cron");
    assert_eq!(
        yearly.next_after(instant("2198-06-01T00:00:00Z"), Timezone::UTC),
        Some(instant("2199-01-01T00:00:00Z"))
    );
    assert_eq!(yearly.next_after(instant("2199-01-01T00:00:00Z"), Timezone::UTC), None);
    // Far outside of the supported years it still answers at once.
    assert_eq!(yearly.next_after(DateTime::<Utc>::MIN_UTC, Timezone::UTC), Some(instant("1970-01-01T00:00:00Z")));
    assert_eq!(yearly.next_after(DateTime::<Utc>::MAX_UTC, Timezone::UTC), None);
    assert!(!yearly.matches(DateTime::<Utc>::MAX_UTC, zone("Pacific/Apia")));
}

#[test]
fn searches_may_start_between_two_minutes() {
    let every_minute = Cron::parse("* * * * *").expect("a cron");
    let between = instant("2026-05-01T09:00:30.5Z");
    assert_eq!(every_minute.next_after(between, Timezone::UTC), Some(instant("2026-05-01T09:01:00Z")));
}

/// The zone data of 2025 were wrong by an hour for thirteen names.
#[test]
fn zone_data_have_the_changes_of_2026() {
    assert_eq!(times("0 9 * * *", "America/Vancouver", "2026-12-01T00:00:00Z", 1), ["12-01 09:00 -0700"]);
    assert_eq!(times("0 9 * * *", "America/Edmonton", "2026-12-01T00:00:00Z", 1), ["12-01 09:00 -0600"]);
}

/// Footer rules apply after the last change that the data list, so after 2099 too.
#[test]
fn summer_time_goes_on_after_2099() {
    assert_eq!(
        times("0 9 1 7 *", "Europe/Paris", "2099-01-01T00:00:00Z", 2),
        ["07-01 09:00 +0200", "07-01 09:00 +0200"]
    );
    assert_eq!(times("0 9 1 7 *", "Europe/Paris", "2199-01-01T00:00:00Z", 1), ["07-01 09:00 +0200"]);
}

/// By the rule of the US this time is in the gap each year.
#[test]
fn crons_always_in_a_gap_never_fire() {
    let cron = Cron::parse("30 2 8-14 3 */7").expect("a cron");
    let error = cron.must_fire_after(instant("2026-11-21T00:00:00Z"), zone("America/New_York")).unwrap_err();
    assert_eq!(error.code(), "never_fires");
}

/// The first and the last local year extend beyond the same years of UTC.
#[test]
fn years_are_those_of_the_local_calendar() {
    let (tokyo, new_york) = (zone("Asia/Tokyo"), zone("America/New_York"));
    let first = Cron::parse("0 0 0 1 1 * 1970").expect("a cron");
    let last = Cron::parse("0 0 23 31 12 * 2199").expect("a cron");
    let (start, end) = (instant("1969-12-31T15:00:00Z"), instant("2200-01-01T04:00:00Z"));
    assert_eq!(first.next_after(DateTime::<Utc>::MIN_UTC, tokyo), Some(start));
    assert_eq!(last.next_after(instant("2200-01-01T03:00:00Z"), new_york), Some(end));
    assert_eq!(last.next_after(end, new_york), None);
    assert!(first.matches(start, tokyo) && last.matches(end, new_york));
    assert!(!first.matches(start, Timezone::UTC) && !last.matches(end, Timezone::UTC));
}

/// No time follows the second instance, so only the fold itself shows that it comes.
#[test]
fn last_times_may_be_second_instances() {
    assert_eq!(
        times("0 30 * 4 4 * 2026", "America/Santiago", "2026-04-05T02:00:00Z", 3),
        ["04-04 23:30 -0300", "04-04 23:30 -0400"]
    );
}

#[test]
fn display_shows_zone_name_and_offset() {
    let paris = zone("Europe/Paris");
    let nine = instant("2026-03-29T07:00:00Z").with_timezone(&paris);
    assert_eq!(nine.to_string(), "2026-03-29 09:00:00 +02:00");
    assert_eq!(format!("{nine:?}"), "2026-03-29T09:00:00+02:00");
    assert_eq!(format!("{paris:>13} {paris:?}"), " Europe/Paris Europe/Paris");
}
