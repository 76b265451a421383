//! The cost of a cron: no allocation to find a time, and bounded effort for any text.

use std::time::{Duration, Instant};

use allocation_counter::measure;
use chrono::{DateTime, Utc};
use schedule::{Cron, Timezone, compile_cron};

/// Crons with long searches: far days, gaps, folds, dense and open fields.
const HARD: [&str; 8] = [
    "* * * * *",
    "59 23 31 12 *",
    "0 0 29 2 1#5",
    "0 0 29 2 */7",
    "30 2 * 3 *",
    "0 0 31W 1-12 5#5",
    "0 0 0 29 2 * 2096",
    "0 0 0 1 1 * 2199",
];

/// The limit to parse, describe and compile one text.
const MOST_ALLOCATIONS: u64 = 20_000;
/// A liveness limit, not a measurement.
const PATIENCE: Duration = Duration::from_secs(60);

fn instant(text: &str) -> DateTime<Utc> {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn zone(name: &str) -> Timezone {
    name.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn finding_a_time_allocates_nothing() {
    let from = instant("2026-03-29T00:59:30Z");
    for text in HARD {
        let cron = Cron::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        for tz in [Timezone::UTC, zone("Europe/Paris"), zone("America/Havana"), zone("Pacific/Apia")] {
            let allocations = measure(|| {
                let next = cron.next_after(from, tz);
                assert!(next.is_none_or(|next| cron.matches(next, tz)));
                assert!(cron.times_after(from, tz).take(10).is_sorted());
            });
            assert_eq!(allocations.count_total, 0, "{text} in {tz}");
        }
    }
}

/// Measures allocations, because they do not depend on the machine; the benches measure the time.
#[test]
fn any_text_costs_bounded_effort() {
    let texts = HARD.iter().map(|text| (*text).to_owned()).chain([
        "x".repeat(1_000_000),
        format!("{} * * * *", "*/2,".repeat(60)),
        format!("{} * * * *", ",".repeat(240)),
        ",, 15 * 7 * 7".to_owned(),
        "0 0 31 2,4,6,9,11 *".to_owned(),
        "0 0 0 31 2,4,6,9,11 * *".to_owned(),
        "0 0 0 1 1 * 1970/2,1970/3,1970/5,1970/7,1971/11,1973/13,1977/17,1979/19,1981/23".to_owned(),
        "0,2,3,7,11,13,17,19,23,29,31,37,41,43,47,53,59 1,2,3,5,7,11,13,17,19,23 2,3,5,7,11,13,17 2,3,5,7 1#1,2#2"
            .to_owned(),
        format!(
            "0 0 * * {}",
            (0..=6).flat_map(|day| (1..=5).map(move |week| format!("{day}#{week}"))).collect::<Vec<_>>().join(",")
        ),
    ]);
    for text in texts {
        let began = Instant::now();
        let allocations = measure(|| {
            if let Ok(cron) = Cron::parse(&text) {
                let tz = zone("America/Santiago");
                assert!(cron.next_after(instant("2199-12-31T23:00:00Z"), tz).is_none_or(|time| cron.matches(time, tz)));
                assert!(!cron.describe_times().is_empty());
                assert!(compile_cron(&cron, tz).expression.len() <= 256);
            }
        });
        assert!(allocations.count_total < MOST_ALLOCATIONS, "{text:.80}: {}", allocations.count_total);
        assert!(began.elapsed() < PATIENCE, "{text:.80} does not come to an end");
    }
}
