//! The dependency rules between the crates. The compiler then forbids what the outbox exists to prevent.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

use crate::sources::rust_files;

/// The only edges between our crates (layout.md, section 1).
const ALLOWED: [(&str, &[&str]); 27] = [
    ("old_names", &[]),
    ("logging", &[]),
    // Its requests do not pass `egress`: an operator names the collector, never a client.
    ("traces", &[]),
    ("schedule", &[]),
    ("db", &["schedule"]),
    ("db_login", &[]),
    // What a dead letter means, and how it is delivered again, is the same for the publisher and the command line.
    ("dead_letters", &["schedule"]),
    ("workflows", &["api_types", "schedule", "db"]),
    ("ledger", &["schedule", "db", "workflows"]),
    // Whatever leaves the service passes through one crate, which knows nothing of what the service does. It measures the
    // time of leases.
    ("egress", &["schedule"]),
    ("executor", &["schedule", "db", "egress", "workflows", "ledger", "traces"]),
    // What becomes a message to people is decided by triggers, so this crate needs no other one that decides.
    ("notifications", &["api_types", "schedule", "db", "egress", "workflows"]),
    // A key decides who may call the API; it decides no fire and no run.
    ("access", &["db", "workflows"]),
    ("console", &["api_types", "schedule"]),
    // Files that define workflows: read by the service and by the command line.
    ("manifest", &[]),
    // Clients read these types, so they bring neither the database nor the server along.
    ("api_types", &[]),
    (
        "app",
        &[
            "api_types",
            "logging",
            "manifest",
            "old_names",
            "schedule",
            "db",
            "db_login",
            "workflows",
            "ledger",
            "egress",
            "executor",
            "notifications",
            "access",
            "console",
            "traces",
        ],
    ),
    ("lambda_database", &["db", "db_login"]),
    // Both Lambdas that post fires take their key here; the runner must not reach the database for that.
    ("scheduler_key", &[]),
    (
        "publisher",
        &["logging", "old_names", "schedule", "scheduler_key", "db", "lambda_database", "dead_letters", "traces"],
    ),
    // It claims and settles messages as the app does, by the same functions.
    ("notifier", &["logging", "schedule", "db", "lambda_database", "notifications"]),
    ("runner", &["logging", "old_names", "schedule", "scheduler_key", "traces"]),
    ("cli", &["api_types", "dead_letters", "manifest", "schedule"]),
    ("stand-in", &[]),
    (
        "local",
        &["logging", "app", "access", "workflows", "ledger", "publisher", "runner", "schedule", "db", "stand-in"],
    ),
    // A model that shares code with what it models would share its mistakes.
    ("model", &[]),
    (
        "tests",
        &[
            "api_types",
            "old_names",
            "app",
            "access",
            "egress",
            "executor",
            "ledger",
            "notifications",
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
const FORBIDDEN: [(&str, &[&str]); 16] = [
    ("api_types", &["sqlx", "axum", "tokio", "aws-", "reqwest", "hyper"]),
    // No call leaves the process inside the transaction of an edit or of a decision.
    ("workflows", &["aws-", "lambda_", "axum", "reqwest"]),
    ("ledger", &["aws-", "lambda_", "axum", "reqwest"]),
    ("egress", &["aws-", "lambda_", "axum", "sqlx", "reqwest"]),
    ("executor", &["aws-", "lambda_", "axum", "reqwest"]),
    ("notifications", &["aws-", "lambda_", "axum", "reqwest"]),
    ("access", &["aws-", "lambda_", "axum", "reqwest"]),
    ("console", &["aws-", "lambda_", "sqlx", "reqwest"]),
    ("app", &["aws-", "lambda_", "reqwest"]),
    ("traces", &["aws-", "lambda_", "axum", "sqlx", "reqwest"]),
    ("runner", &["sqlx", "axum", "aws-sdk-scheduler"]),
    // It posts the fires of dead letters, so it has an HTTP client.
    ("publisher", &["axum"]),
    ("notifier", &["axum", "reqwest", "aws-sdk-scheduler"]),
    // The CLI knows only AWS's queues; schedules belong to the publisher.
    ("cli", &["sqlx", "axum", "aws-sdk-scheduler"]),
    ("schedule", &["tokio", "sqlx", "axum", "aws-", "reqwest", "hyper", "rand", "tz-rs"]),
    // That two evaluators agree proves something only if they share no dialect and no reader of zone data (ADR 5):
    // `schedule` reads them with jiff, the stand-in with tz-rs.
    ("stand-in", &["schedule", "jiff", "chrono-tz", "croner", "sqlx", "aws-"]),
];

/// The crates of the app, which are in the folder of this name.
const OF_APP: [&str; 9] =
    ["access", "api_types", "app", "console", "egress", "executor", "ledger", "notifications", "workflows"];

/// Crates that send requests.
const HTTP_CLIENTS: [&str; 9] =
    ["attohttpc", "awc", "curl", "isahc", "minreq", "reqwest", "surf", "tungstenite", "ureq"];

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

/// `egress` checks each address before it connects; another client in the app would be another way out.
#[test]
fn only_egress_sends_requests() {
    let packages = workspace();
    let folder = |package: &Package| package.manifest_path.parent().unwrap().to_owned();
    let of_app = packages.values().filter(|package| folder(package).parent().unwrap().file_name() == Some("app"));
    let names: BTreeSet<&str> = of_app.clone().map(|package| package.name.as_str()).collect();
    assert_eq!(names, OF_APP.into(), "a crate of the app was added or removed");
    for package in of_app.filter(|package| package.name.as_str() != "egress") {
        for dependency in package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal) {
            let is_hyper = ["hyper", "hyper-util"].contains(&&*dependency.name);
            let is_client = is_hyper && dependency.features.iter().any(|feature| feature.starts_with("client"));
            let is_client = is_client || HTTP_CLIENTS.contains(&&*dependency.name);
            assert!(!is_client, "{} must not depend on {}", package.name, dependency.name);
        }
        // Cargo gives a crate the features that another crate of the build has asked for.
        for file in rust_files(folder(package).join("src").as_std_path()) {
            let source = std::fs::read_to_string(&file).unwrap();
            for client in ["hyper::client", "hyper_util::client"] {
                assert!(!source.contains(client), "{} uses {client}", file.display());
            }
        }
    }
}
