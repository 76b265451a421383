//! docs/errors.md lists each code that an answer or a row may have, and no other code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use app::api::describe;
use app::api::request::problem_codes::PROBLEM_CODES;
use regex::Regex;
use workflows::reasons::ReasonCode;

#[test]
fn page_lists_problem_codes() {
    let app = sources("app");
    let mut codes = found(&app, r#"(?:FieldError|Self)::new\(\s*"([a-z_]+)""#);
    codes.extend(found(&app, r#"Error::conflict\(\s*"([a-z_]+)""#));
    codes.extend(found(&app, r#"Error::limited\(\s*"([a-z_]+)""#));
    codes.extend(found(&app, r#"StatusCode::\w+,\s*"([a-z_]+)""#));
    codes.extend(found(&app, r#""((?:missing|unknown|duplicate)_field)""#));
    // A cron and a timezone bring their own codes.
    let schedule = sources("schedule/src");
    codes.extend(found(&schedule, r#"Code::\w+ => "([a-z_]+)""#));
    codes.extend(found(&schedule, r#"fn code\(&self\) -> &'static str \{\s*"([a-z_]+)""#));
    assert!(codes.len() > 40, "the codes were not found: {codes:?}");
    assert_eq!(listed("Problems"), codes);
    assert_eq!(schema("ProblemCode"), codes);
    assert!(PROBLEM_CODES.is_sorted(), "they are in alphabetical order");
}

/// The test above finds only codes that are written where the error is made.
#[test]
fn problem_codes_are_literals() {
    let made = found(&sources("app"), r"(?:FieldError::new|Error::conflict|Error::limited)\(\s*([^,\s]+),");
    let named = ["NEVER_FIRES", "code", "error.code()"];
    let others: Vec<_> = made.iter().filter(|code| !code.starts_with('"') && !named.contains(&code.as_str())).collect();
    assert!(others.is_empty(), "the codes of {others:?} are not compared with docs/errors.md");
}

#[test]
fn page_lists_reason_codes() {
    let codes: BTreeSet<String> = ReasonCode::ALL.iter().map(|code| code.as_str().to_owned()).collect();
    assert_eq!(codes.len(), ReasonCode::ALL.len(), "two reasons have the same code");
    assert_eq!(listed("Reasons"), codes);
    assert_eq!(schema("ReasonCode"), codes);
    for code in ReasonCode::ALL {
        let row = format!("| `{}` | {} |", code.as_str(), code.sentence().replace("{}", "N"));
        assert!(section("Reasons").contains(&row), "docs/errors.md has another sentence than: {row}");
    }
}

#[test]
fn page_lists_other_codes() {
    let mut answers = found(&sources("app"), r#"Reason::\w+ => "([a-z_]+)""#);
    answers.insert("duplicate".to_owned());
    assert_eq!(listed("Answers to a fire"), answers);
    let mut items = found(&sources("app"), r#"Applied::Refused\("([a-z_]+)"\)"#);
    items.retain(|code| !listed("Problems").contains(code));
    assert_eq!(listed("Refused items of bulk operations"), items);
    assert_eq!(listed("Differences of the ledger"), schema("DifferenceKind"));
    let publisher = sources("lambdas/publisher/src");
    assert_eq!(listed("Errors of publishing"), found(&publisher, r#"\bErrorClass::\w+ => "([a-z_]+)""#));
    assert_eq!(listed("Classes of drift"), found(&publisher, r#"\bClass::\w+ => "([a-z_]+)""#));
    let mut held =
        found(&[sources("app"), publisher].concat(), r"held_reason = (?:COALESCE\(cronbox_hold\(\), )?'([a-z_]+)'");
    let hold = std::fs::read_to_string(root().join("migrations/0035_restore.sql")).unwrap();
    held.extend(found(&[hold], r"THEN '([a-z_]+)'"));
    assert_eq!(listed("Why the ledger is held"), held);
    let mut cli = found(&sources("cli/src"), r#"refusal\(\s*"([a-z_]+)""#);
    cli.retain(|code| !listed("Problems").contains(code));
    assert_eq!(listed("Command line"), cli);
}

/// The codes of the first column of the tables of a section.
fn listed(title: &str) -> BTreeSet<String> {
    let section = section(title);
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(code, _)| code.to_owned()).collect()
}

/// The text under a heading of docs/errors.md.
fn section(title: &str) -> String {
    let page = std::fs::read_to_string(root().join("docs/errors.md")).unwrap();
    let sections =
        page.split("\n## ").find_map(|section| section.strip_prefix(title)?.strip_prefix('\n').map(str::to_owned));
    sections.unwrap_or_else(|| panic!("docs/errors.md has no section {title}"))
}

/// The values of an enum of the API.
fn schema(name: &str) -> BTreeSet<String> {
    let api = describe();
    let values = api["components"]["schemas"][name]["enum"].as_array().unwrap();
    values.iter().map(|value| value.as_str().unwrap().to_owned()).collect()
}

/// What the group of a pattern matches in these sources.
fn found(sources: &[String], pattern: &str) -> BTreeSet<String> {
    let pattern = Regex::new(pattern).unwrap();
    sources.iter().flat_map(|source| pattern.captures_iter(source)).map(|found| found[1].to_owned()).collect()
}

/// The texts of the Rust sources below a folder.
fn sources(folder: &str) -> Vec<String> {
    let mut folders = vec![root().join(folder)];
    let mut texts = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                texts.push(std::fs::read_to_string(&entry).unwrap());
            }
        }
    }
    assert!(!texts.is_empty(), "{folder} has no sources");
    texts
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
