//! Which crons are accepted, their canonical texts, and the error messages for others.

use schedule::Cron;

fn canonical(text: &str) -> String {
    Cron::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
}

/// Code, field and message.
fn refusal(text: &str) -> (&'static str, Option<&'static str>, String) {
    let error = Cron::parse(text).expect_err(text);
    (error.code(), error.field(), error.to_string())
}

#[test]
fn equal_crons_have_one_canonical_text() {
    for (text, written) in [
        ("* * * * *", "* * * * *"),
        ("  0   9\t*  * 1-5 \n", "0 9 * * 1-5"),
        ("0 9 * * mon-FRI", "0 9 * * 1-5"),
        ("0 9 * JaN,mar sun", "0 9 * 1,3 0"),
        ("0 9 * * 7", "0 9 * * 0"),
        ("0 9 * * 5-7", "0 9 * * 0,5,6"),
        ("0 9 * * FRI-SUN", "0 9 * * 0,5,6"),
        ("0 9 * * 0-7", "0 9 * * *"),
        ("00 09 01 01 *", "0 9 1 1 *"),
        ("0,15,30,45 * * * *", "*/15 * * * *"),
        ("0-59/15 * * * *", "*/15 * * * *"),
        ("0/15 * * * *", "*/15 * * * *"),
        ("5/15 * * * *", "5-59/15 * * * *"),
        ("5,20,35,50 * * * *", "5-59/15 * * * *"),
        // The next step would be the last minute, which is not in the list.
        ("7,20,33,46 * * * *", "7-46/13 * * * *"),
        ("0 0 1 1,7 *", "0 0 1 */6 *"),
        ("0 9-17/2 * * *", "0 9-17/2 * * *"),
        ("0 9-18/2 * * *", "0 9-17/2 * * *"),
        ("0 9,17 * * *", "0 9,17 * * *"),
        ("0 9,13,17 * * *", "0 9,13,17 * * *"),
        ("0 9 * * */2", "0 9 * * 0,2,4,6"),
        ("0,30 * * * *", "*/30 * * * *"),
        ("0,59 * * * *", "0,59 * * * *"),
        ("*/59 * * * *", "0,59 * * * *"),
        ("0 0 0 1 1 * */229", "0 0 0 1 1 * 1970,2199"),
        ("1,2,3,7,8,9 * * * *", "1-3,7-9 * * * *"),
        ("0-59 0-23 1-31 1-12 *", "* * * * *"),
        ("@hourly", "0 * * * *"),
        ("@Daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@YEARLY", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("0 30 6 * * *", "30 6 * * *"),
        ("00 30 6 * * *", "30 6 * * *"),
        ("0 30 6 * * * *", "30 6 * * *"),
        ("0 30 6 1 1 ? 2030", "0 30 6 1 1 * 2030"),
        ("0 30 6 1 1 ? 2030-2032", "0 30 6 1 1 * 2030-2032"),
        ("0 30 6 1 1 ? 2030/50", "0 30 6 1 1 * 2030-2199/50"),
        ("0 0 L * ?", "0 0 L * *"),
        ("0 0 ? * 5L", "0 0 * * 5L"),
        ("0 0 ? * fril", "0 0 * * 5L"),
        ("0 0 lw * *", "0 0 LW * *"),
        ("0 0 1,15w,L * *", "0 0 1,15W,L * *"),
        ("0 0 * * FRI#2", "0 0 * * 5#2"),
        ("0 0 * * 5#2,1#1,7L", "0 0 * * 1#1,5#2,0L"),
        ("0 0 * * 5,5#2,5L", "0 0 * * 5"),
        ("0 0 * * 5#1,5#2,5#3,5#4,5#5", "0 0 * * 5"),
        ("0 0 * * 5,5#1,5#2,5#3,5#4,5#5", "0 0 * * 5"),
    ] {
        assert_eq!(canonical(text), written, "{text:?}");
        assert_eq!(canonical(written), written, "of {text:?}");
        assert_eq!(Cron::parse(text), Cron::parse(written));
    }
}

/// In `cron(...)`, Sunday is 1; in a cron, it is 0.
#[test]
fn eventbridge_expressions_count_weekdays_from_one() {
    for (text, written) in [
        ("cron(0 9 ? * MON-FRI *)", "0 9 * * 1-5"),
        ("cron(0 9 ? * 2-6 *)", "0 9 * * 1-5"),
        ("cron(0 9 ? * 1 *)", "0 9 * * 0"),
        ("cron(0 9 ? * 7 *)", "0 9 * * 6"),
        ("cron(0 9 ? * 3#2 *)", "0 9 * * 2#2"),
        ("cron(15 10 ? * 6L 2019-2022)", "0 15 10 * * 5L 2019-2022"),
        ("cron(0 9 3W * ? *)", "0 9 3W * *"),
        ("cron(0 9 L * ? *)", "0 9 L * *"),
        ("cron(0/5 8-17 ? * SUN,SAT *)", "*/5 8-17 * * 0,6"),
        ("CRON( 0 9 1 * ? * )", "0 9 1 * *"),
        // The real service accepted this expression.
        ("cron(0-15/1 8-8 ? * 2,3,4,5,6,7 *)", "0-15 8 * * 1-6"),
        ("cron(30-30 13-13 ? * 2,4,6 *)", "30 13 * * 1,3,5"),
        ("cron(1-31/30 1-1 ? * 1,7 *)", "1,31 1 * * 0,6"),
    ] {
        assert_eq!(canonical(text), written, "{text:?}");
    }
}

#[test]
fn expressions_that_aws_refuses_are_refused() {
    for text in [
        "cron(0 1 * * * *)",
        "cron(7 20 * * NOT *)",
        "cron(71 8 1 * ? *)",
        "cron()",
        "cron(INVALID)",
        "cron(0 1 ? * ? *)",
    ] {
        assert!(Cron::parse(text).is_err(), "{text}");
    }
}

#[test]
fn day_fields_combine_as_in_vixie_cron() {
    let days = |text: &str| -> Vec<u32> {
        let from = "2026-03-31T12:00:00Z".parse().expect("a time");
        let to: chrono::DateTime<chrono::Utc> = "2026-05-01T00:00:00Z".parse().expect("a time");
        let cron = Cron::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        cron.times_after(from, schedule::Timezone::UTC)
            .take_while(|time| *time < to)
            .map(|time| chrono::Datelike::day(&time))
            .collect()
    };
    // April 2026 has Mondays on 6, 13, 20, 27.
    assert_eq!(days("0 0 13 * *"), [13]);
    assert_eq!(days("0 0 * * MON"), [6, 13, 20, 27]);
    assert_eq!(days("0 0 1,2 * MON"), [1, 2, 6, 13, 20, 27], "neither begins with a star: either");
    assert_eq!(days("0 0 */2 * MON"), [13, 27], "one begins with a star: both");
    assert_eq!(days("0 0 1-31/2 * MON").len(), 17, "the same values without the star: either");
    assert_eq!(days("0 0 8-14 * */7"), [12], "the second Sunday");
    assert_eq!(days("0 0 1-31 * MON").len(), 30, "every date, or Monday");
    assert_eq!(days("0 0 ? * MON"), [6, 13, 20, 27]);
}

/// If a day field begins with a star, both day fields must match; otherwise, one of them is enough.
#[test]
fn canonical_texts_keep_a_deciding_star() {
    for (text, written) in [
        ("0 0 */2 * MON", "0 0 */2 * 1"),
        ("0 0 1-31/2 * MON", "0 0 1-31/2 * 1"),
        ("0 0 */2,4 * MON", "0 0 */2,4 * 1"),
        ("0 0 8-14 * */7", "0 0 8-14 * */7"),
        ("0 0 8-14 * */2", "0 0 8-14 * */2"),
        ("0 0 */2 * */2", "0 0 */2 * 0,2,4,6"),
        ("0 0 */2,L * MON", "0 0 */2,L * 1"),
        // Every day matches, so a star has no effect.
        ("0 0 1-31 * MON", "0 0 * * *"),
        ("0 0 15 * 0-6", "0 0 * * *"),
        ("0 0 5,* * MON", "0 0 * * *"),
        ("0 0 *,5 * MON", "0 0 * * 1"),
    ] {
        assert_eq!(canonical(text), written, "{text:?}");
        assert_eq!(canonical(written), written, "of {text:?}");
    }
}

/// These days are `L`, `W`, `#` and 29 February.
#[test]
fn special_days_follow_the_calendar() {
    let next = |text: &str, after: &str| -> String {
        let cron = Cron::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let after = format!("{after}T12:00:00Z").parse().expect("a time");
        cron.next_after(after, schedule::Timezone::UTC).map_or("never".to_owned(), |time| time.date_naive().to_string())
    };
    assert_eq!(next("0 0 L * *", "2024-02-01"), "2024-02-29");
    assert_eq!(next("0 0 L * *", "2026-02-01"), "2026-02-28");
    assert_eq!(next("0 0 * * 5L", "2026-05-01"), "2026-05-29");
    assert_eq!(next("0 0 * * 5#2", "2026-05-01"), "2026-05-08");
    assert_eq!(next("0 0 * * 5#5", "2026-05-01"), "2026-05-29");
    assert_eq!(next("0 0 * * 5#5", "2026-06-01"), "2026-07-31");
    // Saturday 1 August 2026: the nearest weekday of the same month is Monday the 3rd.
    assert_eq!(next("0 0 1W * *", "2026-07-31"), "2026-08-03");
    // Saturday 15 August 2026: Friday.
    assert_eq!(next("0 0 15W * *", "2026-08-10"), "2026-08-14");
    // Sunday 15 November 2026: Monday.
    assert_eq!(next("0 0 15W * *", "2026-11-10"), "2026-11-16");
    // Sunday 31 May 2026: Friday, because the month ends.
    assert_eq!(next("0 0 31W * *", "2026-05-01"), "2026-05-29");
    assert_eq!(next("0 0 LW * *", "2026-05-01"), "2026-05-29");
    // A month without a 31st has no weekday nearest to it.
    assert_eq!(next("0 0 31W * *", "2026-06-01"), "2026-07-31");
    assert_eq!(next("0 0 29 2 *", "2096-03-01"), "2104-02-29");
}

#[test]
fn refusals_name_field_and_reason() {
    for (text, field, message) in [
        ("75 * * * *", "minute", "minute field: 75 is above 59"),
        ("* 24 * * *", "hour", "hour field: 24 is above 23"),
        ("* * 0 * *", "day-of-month", "day-of-month field: 0 is below 1"),
        ("* * 32 * *", "day-of-month", "day-of-month field: 32 is above 31"),
        ("* * * 13 *", "month", "month field: 13 is above 12"),
        ("* * * * 8", "day-of-week", "day-of-week field: 8 is above 7"),
        ("0 * * * * * 1969", "year", "year field: 1969 is below 1970"),
        ("0 * * * * * 2200", "year", "year field: 2200 is above 2199"),
        ("99999999999999999999 * * * *", "minute", "minute field: 99999999999999999999 is above 59"),
        ("75 * * * * *", "second", "second field: 75 is above 59"),
        ("* 17-9 * * *", "hour", "the range from 17 to 9 runs backwards: write 17-23,0-9"),
        ("* 17-9/2 * * *", "hour", "hour field: the range ends at 9, before it begins"),
        ("* * * * 5-1", "day-of-week", "the range from 5 to 1 runs backwards: write 5-6,0-1"),
        ("* * * * FRI-MON", "day-of-week", "the range from FRI to MON runs backwards: write 5-6,0-1"),
        ("* * * * 5-0", "day-of-week", "the range from 5 to 0 runs backwards: write 5-6,0"),
        ("* * * NOV-JAN *", "month", "the range from NOV to JAN runs backwards: write 11-12,1"),
        ("*/0 * * * *", "minute", "minute field: the step must be at least 1"),
        ("*/90 * * * *", "minute", "every 90 minutes has no cron: a step counts anew in each field, which ends at 59"),
        ("0 0 0 1 1 * */230", "year", "year field: step 230 is above 229"),
        (",, 15 * 7 7", "minute", "minute field: a value is missing before the comma"),
        ("1, * * * *", "minute", "minute field: a value is missing at the end"),
        ("1- * * * *", "minute", "minute field: a value is missing at the end"),
        ("*/ * * * *", "minute", "minute field: a value is missing at the end"),
        ("-1 * * * *", "minute", "minute field: unexpected '-'"),
        ("1-2-3 * * * *", "minute", "minute field: unexpected '-'"),
        ("1.5 * * * *", "minute", "minute field: unexpected '.'"),
        ("**  * * * *", "minute", "minute field: unexpected '*'"),
        ("é * * * *", "minute", "minute field: unexpected 'é'"),
        ("x * * * *", "minute", "minute field: x is not a number"),
        ("? * * * *", "minute", "minute field: ? is permitted only in a day field"),
        ("* * * ? *", "month", "month field: ? is permitted only in a day field"),
        ("* * ?,1 * *", "day-of-month", "day-of-month field: ? must be the only item"),
        ("* * ? * ?", "day-of-week", "day-of-week field: ? is already in the day-of-month field; write * here"),
        ("* * * FOO *", "month", "month field: FOO is not a name from JAN to DEC"),
        ("* * * * FRIDAY", "day-of-week", "names have three letters: write FRI for FRIDAY"),
        ("* * * * FRIX", "day-of-week", "day-of-week field: FRIX is not a name from SUN to SAT"),
        ("* * * APRIL *", "month", "names have three letters: write APR for APRIL"),
        ("* * * * L", "day-of-week", "day-of-week field: L needs a weekday before it, such as 5L"),
        ("* * W * *", "day-of-month", "day-of-month field: W needs a day before it, such as 15W"),
        (
            "* * L-3 * *",
            "day-of-month",
            "days before the last one are not in the dialect: L is the last day of the month",
        ),
        ("* * 1-5W * *", "day-of-month", "day-of-month field: unexpected 'W'"),
        ("* * * * 5#6", "day-of-week", "day-of-week field: #6 is not one of #1 to #5"),
        ("* * * * 5#0", "day-of-week", "day-of-week field: #0 is not one of #1 to #5"),
        ("* * * * 5#", "day-of-week", "day-of-week field: a value is missing at the end"),
        ("cron(0 9 ? * 0 *)", "day-of-week", "day-of-week field: 0 is below 1"),
        (
            "cron(0 9 * * * *)",
            "day-of-week",
            "in cron(...), exactly one of the two day fields must be ?: write cron(0 9 * * ? *)",
        ),
    ] {
        assert_eq!(refusal(text), ("invalid_field", Some(field), message.to_owned()), "{text:?}");
    }
}

/// A program can distinguish a cron that EventBridge cannot fire from a wrong field.
#[test]
fn each_kind_of_refusal_has_a_code() {
    for (text, code, message) in [
        (
            "*/10 * * * * *",
            "sub_minute_unsupported",
            "second field: EventBridge fires on the minute, so only 0 is possible",
        ),
        (
            "30 0 9 * * * *",
            "sub_minute_unsupported",
            "second field: EventBridge fires on the minute, so only 0 is possible",
        ),
        ("@reboot", "unsupported_macro", "@reboot is not supported: write a cron"),
        ("@every 5m", "unsupported_macro", "@every counts from the start of a program: write */5 * * * *"),
        (
            "rate(5 minutes)",
            "unsupported_expression",
            "rate(...) counts from its creation, not by the clock; write a cron, such as */5 * * * *",
        ),
        (
            "at(2030-12-31T09:30:00)",
            "unsupported_expression",
            "at(...) fires once; write a cron with its year, such as 0 30 9 31 12 * 2030",
        ),
        ("0 0 30 2 *", "never_fires", "February has no day 30"),
        ("0 0 31 2,4,6,9,11 *", "never_fires", "no day from 1970 to 2199 matches, so it never fires"),
        ("0 0 0 29 2 * 2027", "never_fires", "2027 has no 29 February"),
        ("0 0 31W 2 *", "never_fires", "no day from 1970 to 2199 matches, so it never fires"),
        ("", "wrong_field_count", "the cron is empty: write five fields, for example 0 9 * * *"),
        (
            "5",
            "wrong_field_count",
            "1 field; a cron has 5 (minute hour day-of-month month day-of-week), 6 with seconds first, or 7 with the year last",
        ),
        (
            "* * * *",
            "wrong_field_count",
            "4 fields; a cron has 5 (minute hour day-of-month month day-of-week), 6 with seconds first, or 7 with the year last",
        ),
        (
            "cron(0 9 ? * MON-FRI)",
            "wrong_field_count",
            "5 fields in cron(...); it has 6: minute hour day-of-month month day-of-week year",
        ),
        ("cron(0 9 ? * MON-FRI *", "wrong_field_count", "cron(...) must end with its closing bracket"),
    ] {
        let (found, _, said) = refusal(text);
        assert_eq!((found, said.as_str()), (code, message), "{text:?}");
    }
}

/// The limit applies to the text of the client and to its canonical text.
#[test]
fn crons_have_at_most_256_characters() {
    let long = format!("0 0 1 1 *{}", " ".repeat(248));
    assert_eq!(refusal(&long), ("too_long", None, "257 characters; a cron has at most 256".to_owned()));
    assert_eq!(canonical(&long[..256]), "0 0 1 1 *");
    assert_eq!(refusal(&"é".repeat(257)).0, "too_long");
    let dates: Vec<_> = (1..=31).map(|date| format!("{date}W")).collect();
    let nth = (1..=4).flat_map(|week| (0..=6).map(move |weekday| format!("{weekday}#{week}")));
    let weekdays: Vec<_> = nth.chain((0..=6).map(|weekday| format!("{weekday}L"))).collect();
    let (dates, weekdays) = (dates.join(","), weekdays.join(","));
    let longest = format!("10 10 {dates} 10 {weekdays}");
    assert_eq!((longest.len(), canonical(&longest)), (256, longest));
    let message = "259 characters in the canonical form; a cron has at most 256";
    assert_eq!(refusal(&format!("5/20 1 {dates} * {weekdays}")), ("too_long", None, message.to_owned()));
    // Overlapping steps remain steps, so that a short text has a short canonical text.
    assert_eq!(canonical("0 0 0 1 1 * */2,*/3"), "0 0 0 1 1 * 1970-2198/2,1970-2198/3");
}

/// If a list would be long, steps replace it. A range or a single value has the values that the steps do not cover.
#[test]
fn long_lists_become_steps_ranges_and_values() {
    for (text, written) in [
        ("0 0 0 1 1 * */2,1971", "0 0 0 1 1 * 1970-2198/2,1970-1972"),
        ("0 0 0 1 1 * 1970-2100/3,2150", "0 0 0 1 1 * 1970-2099/3,2150"),
    ] {
        assert_eq!(canonical(text), written, "{text:?}");
        assert_eq!(canonical(written), written, "of {text:?}");
        assert_eq!(Cron::parse(text), Cron::parse(written));
    }
}

#[test]
fn a_refusal_points_at_the_byte() {
    for (text, position) in
        [("0 0 1,32 * *", 6), ("  75 * * * *", 2), ("cron(0 9 ? * MON,x *)", 17), ("* * * * 5#9", 10)]
    {
        assert_eq!(Cron::parse(text).expect_err(text).position(), Some(position), "{text:?}");
    }
}

/// Quartz counts weekdays from 1, so the same text names another day there.
#[test]
fn weekday_numbers_in_quartz_form_are_refused() {
    for (text, written) in [
        ("0 15 10 ? * 6L", "0 15 10 ? * FRIL"),
        ("0 0 12 ? * 2-6", "0 0 12 ? * MON-FRI"),
        ("0 15 10 ? * 6#3", "0 15 10 ? * FRI#3"),
        ("0 15 10 ? * MON,6 2126", "0 15 10 ? * MON,FRI 2126"),
    ] {
        let (code, field, message) = refusal(text);
        assert_eq!((code, field), ("invalid_field", Some("day-of-week")), "{text}");
        let reply = format!("Quartz counts the days of the week from 1, Sunday, and we from 0: write {written}");
        assert_eq!(message, reply, "{text}");
    }
    for (text, written) in [
        ("0 15 10 ? * FRIL", "15 10 * * 5L"),
        ("0 0 12 ? * MON-FRI", "0 12 * * 1-5"),
        ("0 15 10 ? * FRI#3", "15 10 * * 5#3"),
        ("0 15 10 ? * */2", "15 10 * * 0,2,4,6"),
        ("0 15 10 * * 1-5", "15 10 * * 1-5"),
        ("15 10 ? * 1-5", "15 10 * * 1-5"),
        ("cron(15 10 ? * 6L *)", "15 10 * * 5L"),
    ] {
        assert_eq!(canonical(text), written, "{text}");
    }
}

/// Different sets may name the same days; then an edit from one to the other is no change.
#[test]
fn other_sets_may_have_the_same_times() {
    let cron = |text: &str| Cron::parse(text).unwrap();
    for (one, other, same) in [
        ("0 9 8-14 * */7", "0 9 * * 0#2", true),
        ("0 0 9 L 2 * 2027", "0 0 9 28 2 * 2027", true),
        ("0 0 9 L 2 * 2028", "0 0 9 28 2 * 2028", false),
        ("0 9 31 2,3 *", "0 9 31 3 *", true),
        ("0 9 4-22,17W * *", "0 9 4-22 * *", true),
        ("0 9 * * 1", "1 9 * * 1", false),
        ("0 9 * * 1", "0 8 * * 1", false),
        ("0 9 * 1 *", "0 9 * 2 *", false),
        ("0 0 9 1 1 * 2199", "0 0 9 1 1 * 2198", false),
    ] {
        assert_eq!(cron(one).has_same_times(&cron(other)), same, "{one} and {other}");
        assert_eq!(cron(other).has_same_times(&cron(one)), same, "{other} and {one}");
    }
}
