//! What has one place: SQL, the grace of a fire, and the transactions of edits.

use std::collections::BTreeSet;
use std::path::PathBuf;

use regex::Regex;

use crate::sources::{root, rust_files};

#[test]
fn the_api_contains_no_sql() {
    let files = rust_files(&root().join("app/server/src/api"));
    assert!(files.len() >= 15, "the files of the API were not found");
    for path in files {
        let source = std::fs::read_to_string(&path).unwrap();
        assert!(!source.contains("sqlx::query"), "{} contains SQL; it belongs to a noun's file", path.display());
    }
}

/// The app and the publisher must read the same grace, or the two halves of one rule could differ.
#[test]
fn the_grace_is_defined_once() {
    let root = root();
    let crates = ["schedule", "db", "db_login", "app", "lambdas", "local", "cli"];
    let all = crates.iter().flat_map(|name| rust_files(&root.join(name)));
    let defines = |path: &PathBuf| std::fs::read_to_string(path).unwrap().contains("const GRACE:");
    let found: Vec<_> = all.filter(defines).collect();
    assert_eq!(found, [root.join("schedule/src/delivery.rs")]);
}

/// The edits of admins, who belong to no team. Each other one begins by `EditTransaction`, which has the turn of its team.
const EDITS_OF_ADMINS: [&str; 15] = [
    "api/operations/allowed_hosts.rs: put_allowed_hosts",
    "api/operations/dead_letters.rs: act_on_dead_letter",
    "api/operations/drift.rs: check_drift",
    "api/operations/keys.rs: create_key",
    "api/operations/keys.rs: create_team",
    "api/operations/keys.rs: revoke_key",
    "api/operations/outbox.rs: change_outbox_row",
    "api/operations/sessions.rs: end_session",
    "api/operations/signing.rs: find_receiver",
    "api/operations/signing.rs: rotate",
    "api/operations/team_limits.rs: put_team_limits",
    "api/operations/team_secrets.rs: delete_secret",
    "api/operations/team_secrets.rs: put_secret",
    "api/operations/teams.rs: delete_team",
    "api/operations/teams.rs: rename_team",
];

/// An edit that takes a connection without the turn of its team lets one team take all of them.
#[test]
fn edits_of_teams_begin_with_a_turn() {
    let server = root().join("app/server/src");
    let function = Regex::new(r"\bfn (\w+)").unwrap();
    let mut found = BTreeSet::new();
    for path in ["api", "console"].iter().flat_map(|folder| rust_files(&server.join(folder))) {
        let file = path.strip_prefix(&server).unwrap().display().to_string();
        let source = std::fs::read_to_string(&path).unwrap();
        for (at, _) in source.match_indices("begin_transaction(") {
            let name = function.captures_iter(&source[..at]).last().unwrap()[1].to_owned();
            found.insert(format!("{file}: {name}"));
        }
    }
    assert!(found.remove("api/request/edit_transaction.rs: begin_after"), "the type of edits was not found");
    assert_eq!(found, BTreeSet::from(EDITS_OF_ADMINS.map(str::to_owned)), "use EditTransaction::begin_of_team");
}
