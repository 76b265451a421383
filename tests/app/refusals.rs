//! Refused keys: a flood of unknown ones reads no database and leaves a line, and loses no fire.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use local::stack::StackOptions;
use serde_json::{Value, json};
use tests::measure::StatementStatistics;
use tests::{Api, PATIENCE, Runtime, Story};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStderr};
use tokio::task::JoinHandle;

use crate::startup::{app, program, serve_with, stop};

/// A key that has the right form, and that does not exist.
fn unknown_key(nth: u32) -> String {
    format!("cb_{nth:012x}_{}", "A".repeat(43))
}

async fn calls(statistics: &mut StatementStatistics, label: &str) -> i64 {
    let figures = statistics.read_figures().await;
    figures.iter().filter(|figure| figure.label == label).map(|figure| figure.calls).sum()
}

const LOOKUP: &str = "find a key by its public part";
const ACTIVE: &str = "list the digests of active keys";

/// Each unknown key cost two transactions; the limit changed only the status of the answer. A new key, which this
/// instance has not seen yet, is let in.
#[tokio::test]
async fn floods_of_unknown_keys_read_no_database() {
    let s = Story::today().await;
    let mut statistics = StatementStatistics::enable_on(&s.owner_dsn()).await;
    let (mut serving, url) = serve_with(&s.dsn(), &[]).await;
    statistics.reset_figures().await;
    let api = |nth| Api::new(&url, &unknown_key(nth));
    let began = Instant::now();
    let mut unauthorized = 0;
    for nth in 0..600 {
        let answer = api(nth).get("/api/v1/runs").await;
        assert!(matches!(answer.status, 401 | 429), "{answer:?}");
        unauthorized += i64::from(answer.status == 401);
    }
    // Sixty tries, and one more for each second.
    let seconds = i64::try_from(began.elapsed().as_secs()).unwrap() + 1;
    assert!((60..=60 + seconds).contains(&unauthorized), "{unauthorized}");
    assert_eq!(calls(&mut statistics, LOOKUP).await, unauthorized);
    assert!(calls(&mut statistics, ACTIVE).await <= seconds / 5 + 1);
    for key in [&s.keys.editor, &s.keys.admin] {
        Api::new(&url, key).get("/api/v1/runs").await.expect(200);
    }
    Api::new(&url, &s.keys.scheduler).post("/api/v1/cron/workflows/1:invoke", &json!({})).await.expect(400);
    stop(&mut serving).await;
    s.end().await;
}

/// Each request without a key was a transaction.
#[tokio::test]
async fn readiness_is_read_once_a_second() {
    let s = Story::today().await;
    let mut statistics = StatementStatistics::enable_on(&s.owner_dsn()).await;
    let (mut serving, url) = serve_with(&s.dsn(), &[]).await;
    statistics.reset_figures().await;
    let (api, began) = (Api::without_key(&url), Instant::now());
    for _ in 0..200 {
        api.get("/readyz").await.expect(200);
    }
    let seconds = i64::try_from(began.elapsed().as_secs()).unwrap() + 1;
    let proofs = calls(&mut statistics, "prove_writable").await;
    assert!((1..=seconds).contains(&proofs), "{proofs} in {seconds} s");
    stop(&mut serving).await;
    s.end().await;
}

async fn line_with(lines: &mut Lines<BufReader<ChildStderr>>, text: &str) -> String {
    let found = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains(text) {
                return line;
            }
        }
        panic!("it ends without the line {text}")
    };
    tokio::time::timeout(PATIENCE, found).await.expect("no such line")
}

#[tokio::test]
async fn refused_requests_leave_a_line() {
    let s = Story::today().await;
    let mut serving: Child = app()
        .arg("serve")
        .env("DATABASE_URL", s.dsn())
        .env("CRONBOX_BIND_ADDR", "127.0.0.1:0")
        .env("NO_COLOR", "1")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(serving.stderr.take().unwrap()).lines();
    let listens = line_with(&mut lines, "listens on ").await;
    let url = listens.split("listens on ").nth(1).unwrap().split_whitespace().next().unwrap();
    let wf = s.create("0 9 * * *", "UTC").await;
    let path = format!("/api/v1/workflows/{wf}");
    Api::new(url, &unknown_key(7)).get(&path).await.refused(401, "unauthorized", None);
    let line = line_with(&mut lines, "request refused").await;
    let fields = [
        "address=127.0.0.1",
        "key_prefix=\"000000000007\"",
        "route=\"/api/v1/workflows/{target}\"",
        "reason=\"unauthorized\"",
    ];
    for field in fields {
        assert!(line.contains(field), "{line} lacks {field}");
    }
    assert!(!line.contains("AAAA"), "the key is in the log");
    Api::new(url, &s.keys.scheduler).get(&path).await.refused(403, "forbidden", None);
    assert!(line_with(&mut lines, "request refused").await.contains("reason=\"forbidden\""));
    serving.kill().await.unwrap();
    s.end().await;
}

const SECRET: &str = "arn:aws:secretsmanager:us-east-1:123456789012:secret:key";

/// A server in place of Secrets Manager, with one secret that the story can change.
struct Secrets {
    address: String,
    secret: Arc<Mutex<String>>,
}

impl Secrets {
    async fn start(secret: &str) -> Self {
        let secret = Arc::new(Mutex::new(secret.to_owned()));
        let read = async |State(secret): State<Arc<Mutex<String>>>| {
            Json(json!({"ARN": SECRET, "Name": "key", "SecretString": *secret.lock().unwrap()}))
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let router = Router::new().route("/", post(read)).with_state(secret.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, secret }
    }
}

/// The runner as a Lambda, which fetches its key from Secrets Manager.
fn start_runner(s: &Story, runtime: &Runtime, secrets: &Secrets) -> Child {
    let mut runner = program("cronbox-runner");
    runner.envs(runtime.environment("runner")).env("CRONBOX_APP_BASE_URL", s.url()).envs([
        ("CRONBOX_SCHEDULER_API_KEY_SECRET_ARN", SECRET),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
    ]);
    let secrets = format!("http://{}", secrets.address);
    runner.env("AWS_ENDPOINT_URL_SECRETS_MANAGER", secrets).stdout(Stdio::null()).spawn().unwrap()
}

/// Unknown keys from the runner's address, until it is dropped.
fn start_flood(s: &Story) -> JoinHandle<()> {
    let url = s.url().to_owned();
    tokio::spawn(async move {
        for nth in 0.. {
            Api::new(&url, &unknown_key(nth)).get("/api/v1/runs").await;
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
}

/// Behind a load balancer all clients have one address. During a flood of unknown keys, the old key of a runner was
/// answered 429 instead of 401, so the runner did not fetch the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotations_during_a_flood_lose_no_fire() {
    let s = Story::with(StackOptions {
        now: Some("2026-03-02T09:00:05Z".parse().unwrap()),
        app: |config| config.bad_keys_per_min = 5,
        ..StackOptions::default()
    })
    .await;
    let wf = s.create_with(json!({"cron_schedule": "* * * * *"})).await;
    let (mut runtime, secrets) = (Runtime::start().await, Secrets::start(&s.keys.scheduler).await);
    let mut runner = start_runner(&s, &runtime, &secrets);
    let fire = |time: &str| json!({"workflow_id": wf.0, "scheduled_time": time});
    s.now_is("2026-03-02T09:01:01Z").await;
    assert_eq!(runtime.invoke(fire("2026-03-02T09:01:00Z")).await.returned()["accepted"], true);

    let flood = start_flood(&s);
    let stranger = Api::new(s.url(), &unknown_key(u32::MAX));
    let began = Instant::now();
    while stranger.get("/api/v1/runs").await.status != 429 {
        assert!(began.elapsed() < PATIENCE, "the limit is never reached");
    }
    rotate_key(&s, &secrets).await;
    s.now_is("2026-03-02T09:02:01Z").await;
    let second = runtime.invoke(fire("2026-03-02T09:02:00Z")).await.returned();
    assert_eq!(second["accepted"], true, "{second}");
    flood.abort();
    runner.kill().await.unwrap();
    s.end().await;
}

/// As docs/deploy.md says: a new key, the secret, then the old key is revoked.
async fn rotate_key(s: &Story, secrets: &Secrets) {
    let made: Value = s.admin().post("/api/v1/keys", &json!({"kind": "scheduler", "name": "n"})).await.expect(201).json;
    *secrets.secret.lock().unwrap() = made["key"].as_str().unwrap().to_owned();
    let keys = s.admin().get("/api/v1/keys?limit=200").await.expect(200).json;
    let is_old = |key: &&Value| key["kind"] == "scheduler" && key["id"] != made["id"];
    let old = keys["items"].as_array().unwrap().iter().find(is_old).unwrap()["id"].clone();
    s.admin().post_empty(&format!("/api/v1/keys/{}:revoke", old.as_str().unwrap())).await.expect(200);
}
