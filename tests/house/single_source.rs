//! What has one place: SQL, the grace of a fire, the code of an environment.

use std::path::{Path, PathBuf};

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
    let crates = ["schedule", "db", "app", "lambdas", "local", "cli"];
    let all = crates.iter().flat_map(|name| rust_files(&root.join(name)));
    let defines = |path: &PathBuf| std::fs::read_to_string(path).unwrap().contains("const GRACE:");
    let found: Vec<_> = all.filter(defines).collect();
    assert_eq!(found, [root.join("schedule/src/delivery.rs")]);
}

#[test]
fn environments_differ_only_in_values() {
    let envs = root().join("terraform/envs");
    for env in ["stage", "prod"] {
        for file in std::fs::read_dir(envs.join("dev")).unwrap().map(|file| file.unwrap().file_name()) {
            let is_code = Path::new(&file).extension().is_some_and(|extension| extension == "tf");
            if is_code && file != "env.tf" {
                let [dev, other] = ["dev", env].map(|env| std::fs::read_to_string(envs.join(env).join(&file)).unwrap());
                assert_eq!(other, dev, "{env}: {file:?}");
            }
        }
    }
}
