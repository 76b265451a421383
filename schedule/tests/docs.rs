//! Checks each row of the table in docs/cron.md.

use std::{fs, path::Path};

use schedule::{Cron, Timezone, compile_cron};

#[test]
fn the_table_in_the_docs_is_true() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cron.md");
    let text = fs::read_to_string(path).expect("docs/cron.md");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .filter(|cells: &Vec<&str>| matches!(cells[..], [_, _, "exact" | "superset", _]))
        .collect();
    assert!(rows.len() >= 18, "only {} rows", rows.len());
    let paris = "Europe/Paris".parse().expect("a timezone");
    for row in rows {
        let cron = Cron::parse(row[0].trim_matches('`')).unwrap_or_else(|error| panic!("{}: {error}", row[0]));
        let compiled = compile_cron(&cron, paris);
        let zone = if compiled.timezone == Timezone::UTC { " in UTC" } else { "" };
        assert_eq!(format!("`{}`{zone}", compiled.expression), row[1]);
        assert_eq!((compiled.coverage.as_str(), cron.describe_times().as_str()), (row[2], row[3]), "{}", row[0]);
    }
}
