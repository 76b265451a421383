//! The names of metrics: in a page of `/metrics`, in the rules and the dashboard, and in docs/metrics.md.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use regex::Regex;

/// The names of the samples of a page, as Prometheus stores them.
pub fn sampled_names(page: &str) -> BTreeSet<String> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned).collect()
}

/// The names of the metrics of a page, as docs/metrics.md lists them: a histogram once.
pub fn metric_names(page: &str) -> BTreeSet<String> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types.map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() }).collect()
}

/// The names that the rules and the dashboard use.
///
/// # Panics
/// Panics if they cannot be read.
pub fn used_names() -> BTreeSet<String> {
    let name = Regex::new(r"\bcronbox_[a-z0-9_]+").unwrap_or_else(|error| panic!("{error}"));
    let files = ["deploy/prometheus/cronbox.rules.yml", "deploy/grafana/cronbox.json"];
    files.into_iter().flat_map(|file| names_in(&name, &read(file))).collect()
}

/// The names in the tables of docs/metrics.md.
///
/// # Panics
/// Panics if it cannot be read.
pub fn documented_names() -> BTreeSet<String> {
    let row = Regex::new(r"(?m)^\| `cronbox_[a-z0-9_]+").unwrap_or_else(|error| panic!("{error}"));
    names_in(&row, &read("docs/metrics.md")).into_iter().map(|row| row.replace("| `", "")).collect()
}

/// Lets promtool check the names and helps of a page. It reads Prometheus' older text format.
///
/// # Panics
/// Panics if promtool is not installed, or if it complains.
pub fn check_with_promtool(page: &str) {
    let counters: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut older = String::new();
    for line in page.lines().filter(|line| *line != "# EOF") {
        let comment = ["# HELP ", "# TYPE "].into_iter().find_map(|mark| Some((mark, line.strip_prefix(mark)?)));
        match comment.and_then(|(mark, rest)| Some((mark, rest.split_once(' ')?))) {
            Some((mark, (name, rest))) if counters.contains(name) => {
                older.push_str(&format!("{mark}{name}_total {rest}\n"));
            }
            _ => older.push_str(&format!("{line}\n")),
        }
    }
    let mut command = Command::new(promtool());
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut checking = command.spawn().unwrap_or_else(|error| panic!("no promtool: {error}"));
    if let Some(mut input) = checking.stdin.take() {
        input.write_all(older.as_bytes()).unwrap_or_else(|error| panic!("promtool reads nothing: {error}"));
    }
    let said = checking.wait_with_output().unwrap_or_else(|error| panic!("no promtool: {error}"));
    let complaints = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{complaints}");
}

fn names_in(pattern: &Regex, text: &str) -> BTreeSet<String> {
    pattern.find_iter(text).map(|found| found.as_str().to_owned()).collect()
}

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn promtool() -> PathBuf {
    let places = ["/usr/bin/promtool", "/usr/local/bin/promtool", "/opt/homebrew/bin/promtool"];
    let found = places.into_iter().map(PathBuf::from).find(|place| place.is_file());
    found.unwrap_or_else(|| panic!("promtool is not installed: run `make setup`"))
}
