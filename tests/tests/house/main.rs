//! The dependency rules between the crates. The compiler then forbids what the outbox exists to prevent.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

/// The only edges between our crates (layout.md, section 1).
const ALLOWED: [(&str, &[&str]); 8] = [
    ("schedule", &[]),
    ("db", &["schedule"]),
    ("app", &["schedule", "db"]),
    ("publisher", &["schedule", "db"]),
    ("runner", &["schedule"]),
    ("cli", &["schedule"]),
    ("local", &["app", "publisher", "runner", "schedule", "db"]),
    ("tests", &["app", "publisher", "runner", "schedule", "db", "local", "cli"]),
];

/// What a crate must never depend on, directly or indirectly.
const FORBIDDEN: [(&str, &[&str]); 5] = [
    ("app", &["aws-", "lambda_"]),
    ("runner", &["sqlx", "axum", "aws-sdk-scheduler"]),
    ("publisher", &["axum", "reqwest"]),
    // The CLI knows only AWS's queues; schedules belong to the publisher.
    ("cli", &["sqlx", "axum", "aws-sdk-scheduler"]),
    ("schedule", &["tokio", "sqlx", "axum", "aws-", "reqwest", "hyper", "rand"]),
];

fn workspace() -> BTreeMap<String, Package> {
    let metadata = MetadataCommand::new().no_deps().other_options(["--offline".to_owned()]).exec().unwrap();
    metadata.packages.into_iter().map(|package| (package.name.to_string(), package)).collect()
}

fn shipped(package: &Package) -> BTreeSet<String> {
    let shipped = package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal);
    shipped.map(|dependency| dependency.name.clone()).collect()
}

fn host() -> String {
    let told = std::process::Command::new("rustc").arg("-vV").output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    told.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

#[test]
fn crates_depend_on_each_other_only_as_the_layout_allows() {
    let packages = workspace();
    let rooms: BTreeSet<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
    assert_eq!(packages.keys().map(String::as_str).collect::<BTreeSet<_>>(), rooms, "a room was added or removed");
    for (name, allowed) in ALLOWED {
        let edges = shipped(&packages[name]);
        let ours: BTreeSet<&str> = edges.iter().map(String::as_str).filter(|edge| rooms.contains(edge)).collect();
        let surplus: Vec<_> = ours.difference(&allowed.iter().copied().collect()).copied().collect();
        assert!(surplus.is_empty(), "{name} must not depend on {surplus:?}");
    }
}

#[test]
fn nothing_forbidden_comes_in_by_way_of_another_crate() {
    // Crates of other platforms may be missing from this machine.
    let options = ["--offline", "--locked", "--filter-platform", &host()].map(str::to_owned);
    let metadata = MetadataCommand::new().other_options(options).exec().unwrap();
    let resolve = metadata.resolve.as_ref().unwrap();
    let named: BTreeMap<_, _> = metadata.packages.iter().map(|package| (&package.id, package.name.as_str())).collect();
    for (name, forbidden) in FORBIDDEN {
        let root = metadata.packages.iter().find(|package| package.name == name).unwrap();
        let mut reached = BTreeSet::new();
        let mut ahead = vec![root.id.clone()];
        while let Some(id) = ahead.pop() {
            let node = resolve.nodes.iter().find(|node| node.id == id).unwrap();
            for dependency in &node.deps {
                let normal = dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
                if normal && reached.insert(named[&dependency.pkg]) {
                    ahead.push(dependency.pkg.clone());
                }
            }
        }
        let found: Vec<_> =
            reached.iter().filter(|name| forbidden.iter().any(|bad| name.starts_with(bad))).copied().collect();
        // aws-lc is the cryptography of rustls, not an AWS client.
        let found: Vec<_> = found.into_iter().filter(|name| !name.starts_with("aws-lc-")).collect();
        assert!(found.is_empty(), "{name} reaches {found:?}");
    }
}

#[test]
fn the_api_holds_no_sql() {
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../app/src/api")).unwrap() {
        let path = file.unwrap().path();
        let source = std::fs::read_to_string(&path).unwrap();
        assert!(!source.contains("sqlx::query"), "{} holds SQL; it belongs to a noun's file", path.display());
    }
}

#[test]
fn every_table_and_column_is_commented() {
    let mut tables = 0;
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations")).unwrap() {
        let sql = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for table in sql.split("CREATE TABLE ").skip(1) {
            tables += 1;
            let (name, rest) = table.split_once(" (").unwrap();
            assert!(sql.contains(&format!("COMMENT ON TABLE  {name} ")), "table {name} has no comment");
            let body = rest.split_once("\n)").unwrap().0;
            let columns = body.lines().map(str::trim).filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
            for column in columns.map(|line| line.split(' ').next().unwrap()) {
                assert!(sql.contains(&format!("COMMENT ON COLUMN {name}.{column} ")), "{name}.{column} has no comment");
            }
        }
    }
    assert!(tables >= 8, "the migrations were not found");
}

/// If a process ends between an index and the record of its migration, the migration runs again and must succeed.
#[test]
fn unlocked_migrations_can_be_repeated() {
    let mut unlocked = 0;
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations")).unwrap() {
        let path = file.unwrap().path();
        let sql = std::fs::read_to_string(&path).unwrap();
        if sql.starts_with("-- no-transaction") {
            unlocked += 1;
            assert!(sql.contains("INDEX CONCURRENTLY IF NOT EXISTS "), "{}", path.display());
        }
    }
    assert!(unlocked > 0, "the migrations were not found");
}

#[test]
fn environments_differ_in_values_alone() {
    let envs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../terraform/envs");
    for env in ["stage", "prod"] {
        for file in std::fs::read_dir(envs.join("dev")).unwrap().map(|file| file.unwrap().file_name()) {
            let is_code = Path::new(&file).extension().is_some_and(|extension| extension == "tf");
            if is_code && file != "env.tf" {
                let link = std::fs::read_link(envs.join(env).join(&file)).unwrap();
                assert_eq!(link, Path::new("../dev").join(&file), "{env}");
            }
        }
    }
}

/// All Rust sources under a folder.
fn sources(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The app and the publisher must read the same grace, or the two halves of one rule could differ.
#[test]
fn the_grace_of_a_fire_is_defined_once() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let crates = ["schedule", "db", "app", "lambdas", "local", "cli"];
    let all = crates.iter().flat_map(|name| sources(&root.join(name)));
    let defines = |path: &std::path::PathBuf| std::fs::read_to_string(path).unwrap().contains("const GRACE:");
    let found: Vec<_> = all.filter(defines).collect();
    assert_eq!(found, [root.join("schedule/src/delivery.rs")]);
}
