//! What is sent to EventBridge: exactly the cron if possible, else the smallest superset.

use schedule::{
    Coverage::{Exact, Superset},
    Cron, Timezone, compile_cron,
};

fn parse(text: &str) -> Cron {
    Cron::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn zone(name: &str) -> Timezone {
    name.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn expressible_crons_compile_exactly() {
    for (text, expression) in [
        ("0 9 * * *", "cron(0 9 * * ? *)"),
        ("0 9 * * 1-5", "cron(0 9 ? * MON-FRI *)"),
        ("0 9 * * 0", "cron(0 9 ? * SUN *)"),
        ("0 9 * * 6,7", "cron(0 9 ? * SUN,SAT *)"),
        ("0 9 * * 5-7", "cron(0 9 ? * SUN,FRI,SAT *)"),
        ("0 9 * * */2", "cron(0 9 ? * SUN,TUE,THU,SAT *)"),
        ("0 9 * * 1-5/2", "cron(0 9 ? * MON,WED,FRI *)"),
        ("*/15 9-17 * * *", "cron(0/15 9-17 * * ? *)"),
        ("0,30 9 * * *", "cron(0/30 9 * * ? *)"),
        // Two values become a step only if they halve the complete field.
        ("20,40 9 * * *", "cron(20,40 9 * * ? *)"),
        ("0,58 9 * * *", "cron(0,58 9 * * ? *)"),
        ("0 9 1 1,7 *", "cron(0 9 1 1/6 ? *)"),
        // Its next step is the last minute, which the cron does not name.
        ("2,21,40 9 * * *", "cron(2-40/19 9 * * ? *)"),
        ("5/20 9 * * *", "cron(5/20 9 * * ? *)"),
        ("5,6,7 9 * * *", "cron(5-7 9 * * ? *)"),
        ("0 9-17/2 * * *", "cron(0 9-17/2 * * ? *)"),
        ("1,2,4,8 9 * * *", "cron(1,2,4,8 9 * * ? *)"),
        ("0 9 1,15 * *", "cron(0 9 1,15 * ? *)"),
        ("0 9 */2 * *", "cron(0 9 1/2 * ? *)"),
        ("0 9 L * *", "cron(0 9 L * ? *)"),
        ("0 9 15W * *", "cron(0 9 15W * ? *)"),
        ("0 9 * * 5L", "cron(0 9 ? * 6L *)"),
        ("0 9 * * 5#2", "cron(0 9 ? * 6#2 *)"),
        ("0 9 * 3,6 *", "cron(0 9 * 3,6 ? *)"),
        // Simple fields are sent as written, although February has no 30th.
        ("0 9 28,30 2 *", "cron(0 9 28,30 2 ? *)"),
        ("0 9 1 */3 *", "cron(0 9 1 1/3 ? *)"),
        ("0 0 9 31 12 * 2030", "cron(0 9 31 12 ? 2030)"),
        ("0 0 9 31 12 * 2030-2035", "cron(0 9 31 12 ? 2030-2035)"),
        ("@hourly", "cron(0 * * * ? *)"),
        ("@daily", "cron(0 0 * * ? *)"),
        ("@weekly", "cron(0 0 ? * SUN *)"),
        ("@monthly", "cron(0 0 1 * ? *)"),
        ("@yearly", "cron(0 0 1 1 ? *)"),
        ("* * * * *", "cron(* * * * ? *)"),
        // Two day fields with the effect of one: the second Sunday, and the last one of a month with 31 days.
        ("0 9 8-14 * */7", "cron(0 9 ? * 1#2 *)"),
        ("0 9 25-31 3,5 */7", "cron(0 9 ? 3,5 1L *)"),
        // 1 January 2030 is a Tuesday, so the Tuesdays of that month are enough.
        ("0 0 9 1 1 2 2030", "cron(0 9 1/7 1 ? 2030)"),
    ] {
        let compiled = compile_cron(&parse(text), zone("Europe/Paris"));
        assert_eq!((compiled.expression.as_str(), compiled.coverage), (expression, Exact), "{text}");
    }
}

#[test]
fn other_crons_become_the_smallest_superset() {
    for (text, expression) in [
        // Either day: together they include every date and every weekday.
        ("0 9 13 * 5", "cron(0 9 * * ? *)"),
        ("0 9 1 * 5L", "cron(0 9 1,22,23,24,25,26,27,28,29,30,31 * ? *)"),
        // Both days: the Mondays are fewer than the odd dates.
        ("0 9 */2 * 1", "cron(0 9 ? * MON *)"),
        ("0 9 */16 * 1-5", "cron(0 9 1,17 * ? *)"),
        ("0 9 2-5 * */7", "cron(0 9 ? * 1#1 *)"),
        // Lists of special days, and the last weekday, which AWS does not document.
        ("0 9 LW * *", "cron(0 9 26-31 * ? *)"),
        ("0 9 1,L * *", "cron(0 9 1,28,29,30,31 * ? *)"),
        ("0 9 * * 5#1,5#3", "cron(0 9 ? * FRI *)"),
        ("0 9 * * 1#1,5L", "cron(0 9 ? * MON,FRI *)"),
    ] {
        let compiled = compile_cron(&parse(text), zone("Europe/Paris"));
        assert_eq!((compiled.expression.as_str(), compiled.coverage), (expression, Superset), "{text}");
    }
}

#[test]
fn too_long_expressions_are_widened_to_fit() {
    let minutes =
        "0,1,2,4,5,6,8,9,10,12,13,14,16,17,18,20,21,22,24,25,26,28,29,30,32,33,34,36,37,38,40,41,42,44,45,46,48";
    let compiled = compile_cron(&parse(&format!("{minutes} 1,2,4,5,7,8,10,11,13,14,16,17 * * 1")), Timezone::UTC);
    assert_eq!(compiled.coverage, Exact);
    let text =
        format!("{minutes} 1,2,4,5,7,8,10,11,13,14,16,17,19,20 1,2,4,5,7,8,10,11,13,14,16,17 1,2,4,5,7,8,10,11 1");
    let compiled = compile_cron(&parse(&text.replace(" 1,2,4,5,7,8,10,11 1", " 1,2,4,5,7,8,10 *")), Timezone::UTC);
    assert!(compiled.expression.len() <= 256, "{}", compiled.expression);
    // The greatest common step of the years, counted from the first of them.
    let compiled = compile_cron(&parse("0 0 9 1 1 * 1971/6,1971/9"), Timezone::UTC);
    assert_eq!((compiled.expression.as_str(), compiled.coverage), ("cron(0 9 1 1 ? 1971/3)", Superset));
    // Every year except a few: no list of them fits.
    let compiled = compile_cron(&parse("0 0 9 1 1 * */2,*/3"), Timezone::UTC);
    assert_eq!((compiled.expression.as_str(), compiled.coverage), ("cron(0 9 1 1 ? 1970-2198)", Superset));
}

/// An open cron restricts only the minute. It is published in UTC if the minutes of the timezone differ from those of
/// UTC by the same number all year.
#[test]
fn open_crons_are_published_in_utc() {
    for (text, tz, published) in [
        ("*/5 * * * *", zone("America/New_York"), Timezone::UTC),
        ("0 * * * *", zone("Africa/Casablanca"), Timezone::UTC),
        ("* * * * *", zone("Africa/Cairo"), Timezone::UTC),
        // Half and quarter hours: the same minutes later or earlier, all year.
        ("0 * * * *", zone("Asia/Kolkata"), Timezone::UTC),
        ("*/5 * * * *", zone("Australia/Adelaide"), Timezone::UTC),
        ("0 * * * *", zone("America/St_Johns"), Timezone::UTC),
        ("0 * * * *", zone("Pacific/Chatham"), Timezone::UTC),
        // Its offset changes by half an hour, so its minutes are UTC's for a part of the year only.
        ("0 * * * *", zone("Australia/Lord_Howe"), zone("Australia/Lord_Howe")),
        // Not open: the local day, month or hour decides.
        ("0 */2 * * *", zone("America/New_York"), zone("America/New_York")),
        ("0 * * * 1", zone("America/New_York"), zone("America/New_York")),
        ("0 * 1 * *", zone("America/New_York"), zone("America/New_York")),
        ("0 * * 1 *", zone("America/New_York"), zone("America/New_York")),
        ("0 0 * * * * 2030", zone("America/New_York"), zone("America/New_York")),
    ] {
        let compiled = compile_cron(&parse(text), tz);
        assert_eq!((compiled.timezone, compiled.coverage), (published, Exact), "{text} in {tz}");
    }
}

/// Half-hour zones lost twelve fires each autumn, because they were published in local time.
#[test]
fn half_hour_zones_lose_no_fires() {
    let [from, until] = ["2026-01-01T00:00:00Z", "2060-01-01T00:00:00Z"]
        .map(|text| text.parse::<chrono::DateTime<chrono::Utc>>().expect("a time"));
    for (name, text, expression) in [
        ("Australia/Adelaide", "*/5 * * * *", "cron(0/5 * * * ? *)"),
        ("Australia/Broken_Hill", "10 * * * *", "cron(40 * * * ? *)"),
        ("America/St_Johns", "15,50 * * * *", "cron(20,45 * * * ? *)"),
        ("Pacific/Chatham", "*/20 * * * *", "cron(15/20 * * * ? *)"),
        ("Asia/Kathmandu", "0-14 * * * *", "cron(15-29 * * * ? *)"),
    ] {
        let (cron, tz) = (parse(text), zone(name));
        let published = compile_cron(&cron, tz);
        assert_eq!((published.expression.as_str(), published.coverage), (expression, Exact), "{text} in {name}");
        let theirs = parse(&published.expression);
        // Between two changes the offset is constant, so the days around the changes are enough.
        for change in tz.offset_changes_after(from).take_while(|at| *at < until).chain([from]) {
            let [start, end] = [-1, 1].map(|days| change + chrono::TimeDelta::days(days));
            let ours = cron.times_after(start, tz).take_while(|time| *time < end);
            let theirs = theirs.times_after(start, published.timezone).take_while(|time| *time < end);
            assert!(ours.eq(theirs), "{text} in {name} at {change}");
        }
    }
}

#[test]
fn only_zones_that_shift_minutes_stay_local() {
    let zones = schedule::ZoneSet::bundled();
    let hourly = parse("0 * * * *");
    let local: Vec<_> =
        zones.names().filter(|name| compile_cron(&hourly, zone(name)).timezone != Timezone::UTC).collect();
    assert_eq!(local, ["Australia/LHI", "Australia/Lord_Howe"]);
}

#[test]
fn crons_published_in_utc_keep_their_instants() {
    let from = "2026-10-30T00:00:00Z".parse().expect("a time");
    for tz in [zone("America/New_York"), zone("Africa/Casablanca"), zone("America/Havana")] {
        let cron = parse("*/20 * * * *");
        let published = compile_cron(&cron, tz);
        let ours: Vec<_> = cron.times_after(from, tz).take(500).collect();
        let theirs: Vec<_> = parse(&published.expression).times_after(from, published.timezone).take(500).collect();
        assert_eq!(ours, theirs, "{tz}");
    }
}

/// Years without a step, with as many characters as a test needs.
fn scattered_years(count: u32) -> String {
    let years: Vec<_> = (0..count).map(|nth| (1970 + 4 * nth + nth % 3).to_string()).collect();
    years.join(",")
}

/// One more hour adds fewer times than 28 more days, each of which has all the hours.
#[test]
fn widening_adds_the_fewest_times() {
    let years = scattered_years(46);
    let compiled = compile_cron(&parse(&format!("0 10 10,11,13 1,2,31 1 * {years}")), Timezone::UTC);
    let expression = format!("cron(10 10-13 1,2,31 1 ? {years})");
    assert_eq!((compiled.expression, compiled.coverage), (expression, Superset));
}

#[test]
fn expressions_of_256_characters_stay_exact() {
    let years = scattered_years(48);
    let fits = compile_cron(&parse(&format!("0 10 9 1 1 * {years}")), Timezone::UTC);
    assert_eq!((fits.expression.len(), fits.coverage), (256, Exact), "{}", fits.expression);
    let too_long = compile_cron(&parse(&format!("0 10 10 1 1 * {years}")), Timezone::UTC);
    assert_eq!((too_long.expression.as_str(), too_long.coverage), ("cron(10 10 1 1 ? 1970-2160)", Superset));
}
