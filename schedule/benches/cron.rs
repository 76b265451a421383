//! Compares parse, next and compile with croner's, in the same run.
//!
//! `cargo bench -p schedule`; the goals are: faster than croner at each, and under 1 ms for one `next`
//! of the worst cron that is accepted.

use std::hint::black_box;

use chrono::{DateTime, TimeZone, Utc};
use criterion::{Criterion, criterion_group, criterion_main};
use schedule::{Cron, Timezone, compile_cron};

const TYPICAL: &str = "*/15 9-17 * * 1-5";
/// A rare cron: both evaluators have to search two centuries for its few times.
const RARE: &str = "0 12 29 2 *";

fn from() -> DateTime<Utc> {
    DateTime::from_timestamp(1_774_000_000, 0).unwrap_or_default()
}

fn zone(name: &str) -> Timezone {
    name.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn parse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse");
    for text in [TYPICAL, "0 9 * * MON-FRI", "0 0 L * *"] {
        group.bench_function(format!("ours/{text}"), |bench| bench.iter(|| Cron::parse(black_box(text))));
        group.bench_function(format!("croner/{text}"), |bench| {
            bench.iter(|| black_box(text).parse::<croner::Cron>());
        });
    }
    let worst = "0 0 0 1 1 * 1970/2,1970/3,1970/5,1970/7,1971/11,1973/13,1977/17,1979/19,1981/23";
    group.bench_function("ours/worst text", |bench| bench.iter(|| Cron::parse(black_box(worst))));
    let never = "0 0 31 2,4,6,9,11 *";
    group.bench_function("ours/never fires", |bench| bench.iter(|| Cron::parse(black_box(never))));
    group.finish();
}

fn next(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("next");
    for tz in [Timezone::UTC, zone("America/New_York")] {
        for text in [TYPICAL, "* * * * *", "0 9 * * MON", "0 0 L * *", RARE] {
            let ours: Cron = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            let croner: croner::Cron = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            let local = tz.from_utc_datetime(&from().naive_utc());
            group.bench_function(format!("ours/{text} {tz}"), |bench| {
                bench.iter(|| ours.next_after(black_box(from()), tz));
            });
            group.bench_function(format!("croner/{text} {tz}"), |bench| {
                bench.iter(|| croner.find_next_occurrence(black_box(&local), false));
            });
        }
    }
    // The longest search: every month of two centuries, to the last year.
    let worst: Cron = "0 0 0 31 12 5L 2199".parse().unwrap_or_else(|error| panic!("{error}"));
    let start = DateTime::<Utc>::MIN_UTC;
    group.bench_function("ours/worst walk", |bench| bench.iter(|| worst.next_after(black_box(start), Timezone::UTC)));
    let nearly_never: Cron = "0 0 29 2 */7".parse().unwrap_or_else(|error| panic!("{error}"));
    let end = DateTime::from_timestamp(6_000_000_000, 0).unwrap_or_default();
    group.bench_function("ours/rare walk", |bench| {
        bench.iter(|| nearly_never.next_after(black_box(end), Timezone::UTC));
    });
    group.finish();
}

fn publish(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("compile");
    let new_york = zone("America/New_York");
    for text in [TYPICAL, "*/5 * * * *", "0 9 13 * 5", "0 9 8-14 * */7"] {
        let cron: Cron = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        group.bench_function(text, |bench| bench.iter(|| compile_cron(black_box(&cron), new_york)));
    }
    group.finish();
}

criterion_group!(benches, parse, next, publish);
criterion_main!(benches);
