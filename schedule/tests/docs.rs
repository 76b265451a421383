//! Checks the crons in the docs: the table of docs/cron.md, and the examples of docs/migrate.

use std::{fs, path::Path};

use chrono::{DateTime, Datelike, NaiveDate, Utc};
use schedule::{Cron, Timezone, compile_cron};

/// The first day whose times the pages list.
const FIRST_DAY: &str = "2026-03-01";

#[test]
fn the_table_in_the_docs_is_true() {
    let text = read_page("cron.md");
    let rows: Vec<Vec<&str>> = rows_of(&text)
        .into_iter()
        .filter(|cells: &Vec<&str>| matches!(cells[..], [_, _, "exact" | "superset", _]))
        .collect();
    assert!(rows.len() >= 18, "only {} rows", rows.len());
    let paris = "Europe/Paris".parse().expect("a timezone");
    for row in rows {
        let cron = parse(row[0]);
        let compiled = compile_cron(&cron, paris);
        let zone = if compiled.timezone == Timezone::UTC { " in UTC" } else { "" };
        assert_eq!(format!("`{}`{zone}", compiled.expression), row[1]);
        assert_eq!((compiled.coverage.as_str(), cron.describe_times().as_str()), (row[2], row[3]), "{}", row[0]);
    }
}

/// Whether both day fields must match, by the rule of another scheduler.
type MustBothMatch = fn(&str, &str) -> bool;

/// The pages, and the rules: of cron, of robfig/cron 3, of cron-parser, and of Temporal's specification.
const PAGES: [(&str, usize, MustBothMatch); 4] = [
    ("crontab", 3, |day, weekday| day.starts_with('*') || weekday.starts_with('*')),
    ("kubernetes", 4, |day, weekday| [day, weekday].iter().any(|field| field.split(',').any(|item| item == "*"))),
    ("pg-boss", 4, |day, weekday| day == "*" || weekday == "*"),
    ("temporal", 7, |_, _| true),
];

/// The times of a row are those of its cron here, and also those of the other scheduler's cron by that scheduler's rule.
#[test]
fn the_examples_of_migrations_are_true() {
    for (page, count, must_both_match) in PAGES {
        let text = read_page(&format!("migrate/{page}.md"));
        let rows: Vec<Vec<&str>> = rows_of(&text).into_iter().filter(|cells| cells.len() == 3).collect();
        assert!(rows.len() >= count, "{page}: only {} rows", rows.len());
        for row in rows {
            assert_eq!(times_here(&parse(row[1])), row[2], "{page}: {}", row[1]);
            assert_eq!(times_there(page, row[0].trim_matches('`'), must_both_match), row[2], "{page}: {}", row[0]);
        }
    }
}

fn read_page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    fs::read_to_string(path).unwrap_or_else(|error| panic!("docs/{name}: {error}"))
}

/// The cells of all rows that begin with code.
fn rows_of(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

fn parse(cell: &str) -> Cron {
    Cron::parse(cell.trim_matches('`')).unwrap_or_else(|error| panic!("{cell}: {error}"))
}

/// The first three times here.
fn times_here(cron: &Cron) -> String {
    let from: DateTime<Utc> = format!("{FIRST_DAY}T00:00:00Z").parse().expect("a time");
    let times = cron.times_after(from, Timezone::UTC).take(3);
    times.map(|time| time.format("%F %H:%M").to_string()).collect::<Vec<_>>().join(", ")
}

/// The first three times of a cron of one minute and hour, found day by day without our parser.
fn times_there(page: &str, cron: &str, must_both_match: MustBothMatch) -> String {
    let fields: Vec<&str> = cron.split(' ').collect();
    let (five, year) = match (page, &fields[..]) {
        ("temporal", [five @ .., year] | [_, five @ .., year]) if five.len() == 5 => (five, *year),
        ("pg-boss", [_, five @ ..]) if five.len() == 5 => (five, "*"),
        (_, five) => (five, "*"),
    };
    let &[minute, hour, day, month, weekday] = five else { panic!("{page}: {cron}") };
    let first: NaiveDate = FIRST_DAY.parse().expect("a date");
    let dates = first.iter_days().take(5 * 366).filter(|date| {
        let by_day = names(day, date.day(), (1, 31));
        let by_weekday = names(weekday, date.weekday().num_days_from_sunday(), (0, 6));
        let days = if must_both_match(day, weekday) { by_day && by_weekday } else { by_day || by_weekday };
        days && names(month, date.month(), (1, 12)) && (year == "*" || year == date.year().to_string())
    });
    dates.take(3).map(|date| format!("{date} {hour:0>2}:{minute:0>2}")).collect::<Vec<_>>().join(", ")
}

/// Whether a field names a value, by the rule that all schedulers share.
fn names(field: &str, value: u32, (first, last): (u32, u32)) -> bool {
    field.split(',').any(|item| {
        let (range, step) = item.split_once('/').unwrap_or((item, "1"));
        let (from, to) = match range.split_once('-') {
            Some((from, to)) => (number(from), number(to)),
            None if range == "*" => (first, last),
            None if item.contains('/') => (number(range), last),
            None => (number(range), number(range)),
        };
        (from..=to).contains(&value) && (value - from).is_multiple_of(number(step))
    })
}

/// A number, or the number of a weekday.
fn number(text: &str) -> u32 {
    let weekday = (0..).zip(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]).find(|(_, name)| *name == text);
    weekday.map_or_else(|| text.parse::<u32>().unwrap_or_else(|error| panic!("{text}: {error}")), |(number, _)| number)
}
