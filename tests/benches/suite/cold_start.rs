//! B8: the cold start of the deployed binaries under Lambda's runtime API, and their sizes.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use local::config::target_folder;
use serde_json::json;
use tests::Runtime;
use tokio::process::Command;

use crate::backlog::Backlog;
use crate::millis;
use crate::table::{Row, median};

/// In each round, ours runs first, then the peer's.
const ROUNDS: u32 = 9;

/// The durations of the starts, in milliseconds.
#[derive(Default)]
struct Starts {
    /// Until the function polls for its first invocation
    polls: Vec<f64>,
    /// Until it has answered the first invocation
    answers: Vec<f64>,
}

pub(crate) async fn all() -> Vec<Row> {
    let mut rows = publisher().await;
    rows.push(runner().await);
    rows.extend([weight("publisher", &["boto3", "psycopg", "psycopg-binary"]).await, weight("runner", &[]).await]);
    rows
}

/// Measures until the publisher polls, and until it has answered a tick that finds nothing to do.
async fn publisher() -> Vec<Row> {
    let backlog = Backlog::new(0, None).await;
    // A tick sweeps if the last sweep is too old; the peer never sweeps. So the table gets a recent sweep.
    let swept = "INSERT INTO sweeps (requested_by, requested_on, started_on, finished_on)
                 VALUES ('bench', cronbox_now(), cronbox_now(), cronbox_now())";
    sqlx::query(swept).execute(&backlog.pool).await.unwrap();
    let (mut ours, mut theirs) = (Starts::default(), Starts::default());
    for _ in 0..ROUNDS {
        for (starts, command) in [(&mut ours, deployed("publisher")), (&mut theirs, naive("publisher"))] {
            starts.add(command, &backlog.environment(), true).await;
        }
    }
    backlog.end().await;
    let polls = line("publisher: cold start to its first poll", &ours.polls, &theirs.polls);
    let polls = polls.against("against naive Python", ratio(&ours.polls, &theirs.polls), 11.0, 30.0);
    // No goal: a tick also checks for a sweep and measures the outbox, and the peer runs only one query.
    let mut answers = line("publisher: cold start to the answer of an empty tick", &ours.answers, &theirs.answers);
    answers.figures.push(("times faster", ratio(&ours.answers, &theirs.answers)));
    vec![polls, answers]
}

/// Measures until the runner polls. B7 measures the app's part of a delivery.
async fn runner() -> Row {
    let environment =
        vec![("CRONBOX_APP_BASE_URL", "http://127.0.0.1:9".to_owned()), ("CRONBOX_SCHEDULER_API_KEY", "k".to_owned())];
    let (mut ours, mut theirs) = (Starts::default(), Starts::default());
    for _ in 0..ROUNDS {
        for (starts, command) in [(&mut ours, deployed("runner")), (&mut theirs, naive("runner"))] {
            starts.add(command, &environment, false).await;
        }
    }
    let polls = line("runner: cold start to its first poll", &ours.polls, &theirs.polls);
    polls.against("against naive Python", ratio(&ours.polls, &theirs.polls), 1.5, 11.0)
}

impl Starts {
    async fn add(&mut self, mut command: Command, environment: &[(&'static str, String)], answers: bool) {
        let mut runtime = Runtime::start().await;
        command.envs(environment.iter().cloned()).envs(runtime.environment("bench")).env("RUST_LOG", "warn");
        command.stdout(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
        let started = Instant::now();
        let mut sandbox = command.spawn().unwrap();
        runtime.wait_for_polls(1).await;
        self.polls.push(millis(started));
        if answers {
            let report = runtime.invoke(json!({"source": "aws.events"})).await.returned();
            self.answers.push(millis(started));
            assert_eq!(report["processed"], 0, "{report}");
        }
        sandbox.kill().await.unwrap();
    }
}

/// The binary that `make lambdas` has packed into the zip.
fn deployed(name: &str) -> Command {
    Command::new(bootstrap(name))
}

fn bootstrap(name: &str) -> PathBuf {
    let built = target_folder().join(format!("lambda/cronbox-{name}/bootstrap"));
    assert!(built.exists(), "{} is missing: run `make lambdas`", built.display());
    built
}

fn naive(name: &str) -> Command {
    let mut command = Command::new(target_folder().join("venv/bin/python"));
    command.args([concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers/naive_lambda.py"), name]);
    command
}

fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    median(theirs) / median(ours)
}

fn line(what: &str, ours: &[f64], theirs: &[f64]) -> Row {
    let least = ours.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ours.iter().copied().fold(0.0, f64::max);
    let figures =
        vec![("p50 ms", median(ours)), ("min ms", least), ("max ms", most), ("naive Python p50 ms", median(theirs))];
    Row::new("B8", what, figures)
}

/// Compares the sizes. `make lambdas` already refuses a zip that is too large.
async fn weight(name: &str, peer: &[&str]) -> Row {
    let zip = megabytes(target_folder().join(format!("lambdas/x86_64/{name}.zip")));
    let mut figures = vec![("zip MB", zip), ("binary MB", megabytes(bootstrap(name)))];
    if !peer.is_empty() {
        let mut packed = Command::new(target_folder().join("venv/bin/python"));
        packed.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers/naive_zip.py")).args(peer);
        let reply = packed.output().await.unwrap();
        assert!(reply.status.success(), "{}", String::from_utf8_lossy(&reply.stderr));
        figures.push(("naive Python zip MB", String::from_utf8(reply.stdout).unwrap().trim().parse().unwrap()));
    }
    Row::new("B8", format!("{name}: what is deployed"), figures)
}

fn megabytes(file: PathBuf) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a file of some MB")]
    let bytes = fs::metadata(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).len() as f64;
    bytes / 1e6
}
