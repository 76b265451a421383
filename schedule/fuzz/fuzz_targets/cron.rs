//! Parses any text: the result is an error, or a cron with the properties below.

#![no_main]

use chrono::DateTime;
use libfuzzer_sys::fuzz_target;
use schedule::{Coverage, Cron, compile_cron};

fuzz_target!(|text: &str| {
    let cron = match Cron::parse(text) {
        Ok(cron) => cron,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(error.position().is_none_or(|position| position <= text.len()));
            return;
        }
    };
    let canonical = cron.to_string();
    assert!(canonical.len() <= 256);
    assert_eq!(Cron::parse(&canonical), Ok(cron));
    assert!(!cron.describe_times().is_empty());

    // Santiago's offset changes at midnight; the text itself selects the start.
    let tz = schedule::parse_timezone("America/Santiago").expect("a timezone");
    let seed = text.bytes().fold(0_i64, |seed, byte| seed.wrapping_mul(31).wrapping_add(i64::from(byte)));
    let from = DateTime::from_timestamp(seed.rem_euclid(7_000_000_000), 0).expect("a time");
    let compiled = compile_cron(&cron, tz);
    assert!(compiled.expression.len() <= 256);
    let published = Cron::parse(&compiled.expression).expect("EventBridge's own grammar");
    let mut last = from;
    for time in cron.times_after(from, tz).take(4) {
        assert!(time > last && cron.matches(time, tz));
        assert!(published.matches(time, compiled.timezone));
        last = time;
    }
    if compiled.coverage == Coverage::Exact {
        assert!(published.times_after(from, compiled.timezone).take(4).all(|time| cron.matches(time, tz)));
    }
});
