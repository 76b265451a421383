//! What EventBridge gets: exactly the cron where it can say it, else the least that has all its times.

use schedule::{
    Coverage::{Exact, Superset},
    Cron, Tz, compile,
};

fn parse(text: &str) -> Cron {
    Cron::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn what_eventbridge_can_say_is_said_exactly() {
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
        ("0 9 1 */3 *", "cron(0 9 1 1/3 ? *)"),
        ("0 0 9 31 12 * 2030", "cron(0 9 31 12 ? 2030)"),
        ("0 0 9 31 12 * 2030-2035", "cron(0 9 31 12 ? 2030-2035)"),
        ("@hourly", "cron(0 * * * ? *)"),
        ("@daily", "cron(0 0 * * ? *)"),
        ("@weekly", "cron(0 0 ? * SUN *)"),
        ("@monthly", "cron(0 0 1 * ? *)"),
        ("@yearly", "cron(0 0 1 1 ? *)"),
        ("* * * * *", "cron(* * * * ? *)"),
        // Two day fields that come to one: the second Sunday, and the last of a month with 31 days.
        ("0 9 8-14 * */7", "cron(0 9 ? * 1#2 *)"),
        ("0 9 25-31 3,5 */7", "cron(0 9 ? 3,5 1L *)"),
        // 1 January 2030 is a Tuesday: so the Tuesdays of that month say it all.
        ("0 0 9 1 1 2 2030", "cron(0 9 1/7 1 ? 2030)"),
    ] {
        let compiled = compile(&parse(text), chrono_tz::Europe::Paris);
        assert_eq!((compiled.expression.as_str(), compiled.coverage), (expression, Exact), "{text}");
    }
}

#[test]
fn what_it_cannot_say_becomes_the_smallest_superset() {
    for (text, expression) in [
        // Either day: together they touch every date and every weekday.
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
        let compiled = compile(&parse(text), chrono_tz::Europe::Paris);
        assert_eq!((compiled.expression.as_str(), compiled.coverage), (expression, Superset), "{text}");
    }
}

#[test]
fn an_expression_that_would_be_too_long_is_widened_where_it_costs_least() {
    let minutes =
        "0,1,2,4,5,6,8,9,10,12,13,14,16,17,18,20,21,22,24,25,26,28,29,30,32,33,34,36,37,38,40,41,42,44,45,46,48";
    let compiled = compile(&parse(&format!("{minutes} 1,2,4,5,7,8,10,11,13,14,16,17 * * 1")), Tz::UTC);
    assert_eq!(compiled.coverage, Exact);
    let text =
        format!("{minutes} 1,2,4,5,7,8,10,11,13,14,16,17,19,20 1,2,4,5,7,8,10,11,13,14,16,17 1,2,4,5,7,8,10,11 1");
    let compiled = compile(&parse(&text.replace(" 1,2,4,5,7,8,10,11 1", " 1,2,4,5,7,8,10 *")), Tz::UTC);
    assert!(compiled.expression.len() <= 256, "{}", compiled.expression);
    // Every year but a few: no list of them fits.
    let compiled = compile(&parse("0 0 9 1 1 * */2,*/3"), Tz::UTC);
    assert_eq!((compiled.expression.as_str(), compiled.coverage), ("cron(0 9 1 1 ? 1970-2198)", Superset));
}

#[test]
fn a_cron_open_by_hour_and_day_goes_out_in_utc_where_minutes_are_the_same() {
    for (text, tz, published) in [
        ("*/5 * * * *", chrono_tz::America::New_York, Tz::UTC),
        ("0 * * * *", chrono_tz::Africa::Casablanca, Tz::UTC),
        ("* * * * *", chrono_tz::Africa::Cairo, Tz::UTC),
        // Half and quarter hours: their minutes are not UTC's.
        ("0 * * * *", chrono_tz::Asia::Kolkata, chrono_tz::Asia::Kolkata),
        ("0 * * * *", chrono_tz::Australia::Lord_Howe, chrono_tz::Australia::Lord_Howe),
        ("0 * * * *", chrono_tz::America::St_Johns, chrono_tz::America::St_Johns),
        ("0 * * * *", chrono_tz::Pacific::Chatham, chrono_tz::Pacific::Chatham),
        // Not open: the local day, month or hour decides.
        ("0 */2 * * *", chrono_tz::America::New_York, chrono_tz::America::New_York),
        ("0 * * * 1", chrono_tz::America::New_York, chrono_tz::America::New_York),
        ("0 * 1 * *", chrono_tz::America::New_York, chrono_tz::America::New_York),
        ("0 * * 1 *", chrono_tz::America::New_York, chrono_tz::America::New_York),
        ("0 0 * * * * 2030", chrono_tz::America::New_York, chrono_tz::America::New_York),
    ] {
        let compiled = compile(&parse(text), tz);
        assert_eq!((compiled.timezone, compiled.coverage), (published, Exact), "{text} in {tz}");
    }
}

#[test]
fn a_cron_published_in_utc_keeps_its_instants() {
    let from = "2026-10-30T00:00:00Z".parse().expect("a time");
    for tz in [chrono_tz::America::New_York, chrono_tz::Africa::Casablanca, chrono_tz::America::Havana] {
        let cron = parse("*/20 * * * *");
        let published = compile(&cron, tz);
        let ours: Vec<_> = cron.times_after(from, tz).take(500).collect();
        let theirs: Vec<_> = parse(&published.expression).times_after(from, published.timezone).take(500).collect();
        assert_eq!(ours, theirs, "{tz}");
    }
}
