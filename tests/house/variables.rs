//! The environment variables of the programs: their names, and the tables of docs/deploy.md and docs/cli.md.

use std::collections::BTreeSet;
use std::path::PathBuf;

use old_names::{PREFIX, VARIABLES};
use regex::Regex;

use crate::sources::{root, rust_files};

/// The variable of ours that a library defines.
const DATABASE_URL: &str = "DATABASE_URL";

#[test]
fn our_variables_begin_with_the_prefix() {
    let variables = variables_of_sources(|_| true);
    assert!(variables.len() > 40, "the variables were not found");
    for variable in &variables {
        assert!(variable == DATABASE_URL || variable.starts_with(PREFIX), "{variable} does not begin with {PREFIX}");
    }
    for old in VARIABLES {
        assert!(variables.contains(&format!("{PREFIX}{old}")), "no program reads {PREFIX}{old}");
    }
}

#[test]
fn documents_list_every_variable() {
    let documented: BTreeSet<String> =
        ["docs/deploy.md", "docs/cli.md"].into_iter().flat_map(variables_of_document).collect();
    // Those that are hidden are for tests.
    assert_eq!(documented, variables_of_sources(|attribute| !attribute.contains("hide = true")));
}

/// A default that changes in a program changes in its document, too.
#[test]
fn documents_state_the_defaults() {
    let row = Regex::new(r"(?m)^\| `(\w+)` \| *([^|]*?) *\|").unwrap();
    let text = std::fs::read_to_string(root().join("docs/deploy.md")).unwrap();
    let stated: Vec<(String, String)> =
        row.captures_iter(&text).map(|found| (found[1].to_owned(), found[2].to_owned())).collect();
    let mut compared = 0;
    for (variable, default) in defaults_of_sources() {
        let said: Vec<&str> =
            stated.iter().filter(|(name, _)| *name == variable).map(|(_, said)| said.as_str()).collect();
        // docs/cli.md has no column for defaults.
        if !said.is_empty() {
            compared += 1;
            assert!(said.contains(&default.as_str()), "{variable}: docs/deploy.md says {said:?} instead of {default}");
        }
    }
    assert!(compared > 30, "the defaults were not found");
}

/// The variables with a default that is written beside them.
fn defaults_of_sources() -> Vec<(String, String)> {
    let option =
        Regex::new(r#"\benv = "([^"]+)".*?\bdefault_value(?:_t)? = ("[^"]*"|true|false|[0-9_]+(?: \* [0-9_]+)*)"#)
            .unwrap();
    let sources = program_files().into_iter().map(|file| std::fs::read_to_string(file).unwrap());
    let defaults = sources.flat_map(|source| {
        let found = option.captures_iter(&source).map(|found| (found[1].to_owned(), default_as_text(&found[2])));
        found.collect::<Vec<_>>()
    });
    defaults.collect()
}

/// A default as a person writes it: `24 * 60 * 60` is 86400.
fn default_as_text(written: &str) -> String {
    if let Some(text) = written.strip_prefix('"') {
        return text.trim_end_matches('"').to_owned();
    }
    let factors = written.split(" * ").map(|factor| factor.replace('_', "").parse::<u64>());
    factors.product::<Result<u64, _>>().map_or_else(|_| written.to_owned(), |product| product.to_string())
}

fn program_files() -> Vec<PathBuf> {
    ["app", "lambdas", "cli", "local"].into_iter().flat_map(|folder| rust_files(&root().join(folder))).collect()
}

/// The variables that options of the programs read; `counts` sees the line of the option.
fn variables_of_sources(counts: fn(&str) -> bool) -> BTreeSet<String> {
    let variable = Regex::new(r#"\benv = "([^"]+)""#).unwrap();
    let sources = program_files().into_iter().map(|file| std::fs::read_to_string(file).unwrap());
    let variables = sources.flat_map(|source| {
        let lines = source.lines().filter(|line| counts(line));
        lines.filter_map(|line| Some(variable.captures(line)?[1].to_owned())).collect::<Vec<_>>()
    });
    variables.collect()
}

/// The variables in the first column of a document's tables.
fn variables_of_document(path: &str) -> Vec<String> {
    let row = Regex::new(&format!("(?m)^\\| `({DATABASE_URL}|{PREFIX}\\w+)` \\|")).unwrap();
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    row.captures_iter(&text).map(|found| found[1].to_owned()).collect()
}
