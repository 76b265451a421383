//! The dependency rules between the crates. The compiler then forbids what the outbox exists to prevent.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

/// The only edges between our crates (layout.md, section 1).
const ALLOWED: [(&str, &[&str]); 17] = [
    ("old_names", &[]),
    ("logging", &[]),
    ("schedule", &[]),
    ("db", &["schedule"]),
    ("workflows", &["schedule", "db"]),
    ("ledger", &["schedule", "db", "workflows"]),
    // Whatever leaves the service passes through one crate, which knows nothing of what the service does.
    ("egress", &[]),
    ("executor", &["schedule", "db", "egress", "workflows", "ledger"]),
    // A key decides who may call the API; it decides no fire and no run.
    ("access", &["db", "workflows"]),
    ("app", &["logging", "old_names", "schedule", "db", "workflows", "ledger", "egress", "executor", "access"]),
    ("publisher", &["logging", "old_names", "schedule", "db"]),
    ("runner", &["logging", "old_names", "schedule"]),
    ("cli", &["schedule"]),
    ("stand-in", &[]),
    ("local", &["logging", "app", "access", "workflows", "publisher", "runner", "schedule", "db", "stand-in"]),
    // A model that shares code with what it models would share its mistakes.
    ("model", &[]),
    (
        "tests",
        &[
            "old_names",
            "app",
            "access",
            "egress",
            "executor",
            "ledger",
            "workflows",
            "publisher",
            "runner",
            "schedule",
            "db",
            "stand-in",
            "local",
            "cli",
        ],
    ),
];

/// What a crate must never depend on, directly or indirectly.
const FORBIDDEN: [(&str, &[&str]); 11] = [
    // No call leaves the process inside the transaction of an edit or of a decision.
    ("workflows", &["aws-", "lambda_", "axum", "reqwest"]),
    ("ledger", &["aws-", "lambda_", "axum", "reqwest"]),
    ("egress", &["aws-", "lambda_", "axum", "sqlx"]),
    ("executor", &["aws-", "lambda_", "axum"]),
    ("access", &["aws-", "lambda_", "axum", "reqwest"]),
    ("app", &["aws-", "lambda_"]),
    ("runner", &["sqlx", "axum", "aws-sdk-scheduler"]),
    ("publisher", &["axum", "reqwest"]),
    // The CLI knows only AWS's queues; schedules belong to the publisher.
    ("cli", &["sqlx", "axum", "aws-sdk-scheduler"]),
    ("schedule", &["tokio", "sqlx", "axum", "aws-", "reqwest", "hyper", "rand", "tz-rs"]),
    // That two evaluators agree proves something only if they share no dialect and no reader of zone data (ADR 5):
    // `schedule` reads them with jiff, the stand-in with tz-rs.
    ("stand-in", &["schedule", "jiff", "chrono-tz", "croner", "sqlx", "aws-"]),
];

/// The packages of the workspace, by name.
pub(crate) fn workspace() -> BTreeMap<String, Package> {
    let metadata = MetadataCommand::new().no_deps().other_options(["--offline".to_owned()]).exec().unwrap();
    metadata.packages.into_iter().map(|package| (package.name.to_string(), package)).collect()
}

fn shipped(package: &Package) -> BTreeSet<String> {
    let shipped = package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal);
    shipped.map(|dependency| dependency.name.clone()).collect()
}

fn host() -> String {
    let reply = std::process::Command::new("rustc").arg("-vV").output().unwrap();
    let reply = String::from_utf8(reply.stdout).unwrap();
    reply.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

#[test]
fn crates_depend_only_as_the_layout_allows() {
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

/// Indirect dependencies count, too.
#[test]
fn no_crate_reaches_a_forbidden_dependency() {
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
