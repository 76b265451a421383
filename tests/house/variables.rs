//! The environment variables of the programs: their names, and the tables of docs/deploy.md and docs/cli.md.

use std::collections::BTreeSet;

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

/// The variables that options of the programs read; `counts` sees the line of the option.
fn variables_of_sources(counts: fn(&str) -> bool) -> BTreeSet<String> {
    let variable = Regex::new(r#"\benv = "([^"]+)""#).unwrap();
    let files = ["app", "lambdas", "cli", "local"].into_iter().flat_map(|folder| rust_files(&root().join(folder)));
    let sources = files.map(|file| std::fs::read_to_string(file).unwrap());
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
