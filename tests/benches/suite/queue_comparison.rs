//! B2: a drain without calls to AWS, compared with queues whose jobs do nothing.

use std::path::Path;
use std::process::Stdio;

use local::config::target_folder;
use local::stack::Database;
use serde_json::Value;
use tokio::process::Command;

use crate::backlog::{Backlog, Drained};
use crate::table::{Row, median};

const ROWS: i64 = 100_000;
const WORKFLOWS: i64 = 10_000;
/// The versions that run on Node 20; newer ones need a newer Node.
const PACKAGES: [&str; 3] = ["graphile-worker@0.17", "pg-boss@10", "pg@8"];
const PEERS: [&str; 2] = ["graphile-worker", "pg-boss"];

/// The rows request schedules that already exist: a complete drain, but without the calls.
pub(crate) async fn all() -> Vec<Row> {
    let folder = target_folder().join("bench/peers");
    if !install(&folder).await {
        println!("B2 is left out: its peers need node and npm");
        return Vec::new();
    }
    let backlog = Backlog::new(0, None).await;
    backlog.fill(WORKFLOWS, WORKFLOWS).await;
    backlog.drain(1, None).await;
    let (mut ours, mut theirs) = (Vec::new(), [Vec::new(), Vec::new()]);
    for _ in 0..3 {
        backlog.ask_again(ROWS / WORKFLOWS).await;
        let Drained { rows, secs, .. } = backlog.drain(1, None).await;
        ours.push(rows / secs);
        for (peer, rates) in PEERS.iter().zip(&mut theirs) {
            rates.push(drain_of(peer, &folder).await);
        }
    }
    backlog.end().await;
    let (ours, theirs) = (median(&ours), theirs.map(|rates| median(&rates)));
    let figures = vec![("rows/s", ours), ("graphile-worker jobs/s", theirs[0]), ("pg-boss jobs/s", theirs[1])];
    let row = Row::new("B2", "100,000 rows / 10,000 workflows that change nothing", figures);
    vec![row.against("against the best queue", ours / theirs[0].max(theirs[1]), 1.5, 3.0)]
}

async fn install(folder: &Path) -> bool {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers/queues.mjs");
    std::fs::create_dir_all(folder).unwrap();
    std::fs::copy(script, folder.join("queues.mjs")).unwrap();
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--silent", "--prefix"]).arg(folder).args(PACKAGES);
    npm.status().await.is_ok_and(|status| status.success())
}

/// Jobs per second of a peer, on a database of its own.
async fn drain_of(peer: &str, folder: &Path) -> f64 {
    let database = Database::clone_template().await.unwrap();
    let mut node = Command::new("node");
    node.arg(folder.join("queues.mjs")).args([peer, &ROWS.to_string()]).env("CRONBOX_DB_DSN", database.dsn());
    let output = node.stderr(Stdio::inherit()).output().await.unwrap();
    database.remove_clone().await.unwrap();
    let reply = output.stdout.split(|byte| *byte == b'\n').find_map(|line| serde_json::from_slice::<Value>(line).ok());
    let reply = reply.unwrap_or_else(|| panic!("{peer} fails"));
    reply["rows"].as_f64().unwrap() / reply["secs"].as_f64().unwrap()
}
