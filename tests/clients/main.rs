//! The generated clients take the tour of the README, against a stack that publishes and fires by itself.
//!
//! `make clients` runs it, because it makes the packages; `cargo test` skips it.

use local::config::target_folder;
use tests::{PATIENCE, Story};
use tokio::process::Command;

/// A schedule fires within a minute, and the machine may be slow.
const TOUR: std::time::Duration = std::time::Duration::from_secs(60 + PATIENCE.as_secs());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_takes_the_tour() {
    let s = Story::with_daemon().await;
    let (python, typescript) = (target_folder().join("clients/python"), target_folder().join("clients/typescript"));
    let mut clients = vec![
        ("python", Command::new(target_folder().join("venv-clients/bin/python"))),
        ("rust", Command::new(target_folder().join("clients/rust/debug/examples/tour"))),
    ];
    clients[0].1.arg("tour.py").current_dir(&python);
    if typescript.join("dist/tour.js").exists() {
        let mut node = Command::new("node");
        node.arg("dist/tour.js").current_dir(&typescript);
        clients.push(("typescript", node));
    } else {
        println!("typescript: SKIPPED, because npm is not installed");
    }
    // All at once: each waits for the fire of its own workflow.
    let tours = clients.into_iter().map(|(name, mut command)| {
        command.env("CRONBOX_URL", s.url()).env("CRONBOX_KEY", &s.keys.editor).kill_on_drop(true);
        command.env("CRONBOX_TEAM_ID", s.keys.team_id.to_string());
        async move {
            let done = tokio::time::timeout(TOUR, command.output()).await;
            let done = done.unwrap_or_else(|_| panic!("{name}: the tour does not end")).unwrap();
            let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
            print!("{said}");
            assert!(done.status.success(), "{name}: {said}");
        }
    });
    futures::future::join_all(tours).await;
    let runs = "SELECT count(*) FROM runs WHERE state = 'succeeded' AND trigger = 'schedule'";
    assert!(s.count(runs).await >= 2, "the schedules of the clients fired");
    s.end_early().await;
}
