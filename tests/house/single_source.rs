//! What has one place: SQL, and the grace of a fire.

use std::path::PathBuf;

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
