//! Tests of the real process: its output without Lambda, and its behaviour in Lambda.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const RUNNER: &str = env!("CARGO_BIN_EXE_cronbox-runner");
const KEY_ARN: &str = "arn:aws:secretsmanager:us-east-1:123456789012:secret:key";

/// A workflow whose fires a proxy answers with a page.
const PAGE: i64 = 3;

fn run(env: &[(&str, &str)]) -> Output {
    Command::new(RUNNER).env_clear().envs(env.iter().copied()).output().unwrap()
}

#[test]
fn a_start_outside_lambda_is_one_sentence() {
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "cronbox-runner: this program runs only as a Lambda: `make up` starts it on this machine\n"
    );
}

#[test]
fn a_missing_variable_is_one_sentence_too() {
    let output = run(&[("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9"), ("CRONBOX_APP_BASE_URL", "http://app")]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "cronbox-runner: set CRONBOX_APP_BASE_URL, and CRONBOX_SCHEDULER_API_KEY or \
         CRONBOX_SCHEDULER_API_KEY_SECRET_ARN\n"
    );
}

/// Lambda, Secrets Manager and the app in one server.
struct World {
    events: Mutex<VecDeque<Value>>,
    answers: UnboundedSender<(String, Value)>,
    /// The current versions of the secret, one for each time that it is fetched.
    secrets: Mutex<VecDeque<&'static str>>,
    previous: Option<&'static str>,
    keys_seen: Mutex<Vec<String>>,
}

/// The refused delivery is repeated once with the new key, and the next delivery uses that key. The log has neither
/// key.
#[tokio::test]
async fn rotated_keys_are_fetched_again_once() {
    let (world, mut answers) = world([event(1), event(2)], ["old", "new", "never fetched"]);
    let address = serve(world.clone()).await;
    let mut runner = runner_at(&address);
    let first = answer(&mut answers).await;
    let second = answer(&mut answers).await;
    runner.kill().unwrap();
    let log = String::from_utf8(runner.wait_with_output().unwrap().stderr).unwrap();

    assert_eq!(first, ("response".to_owned(), json!({"accepted": true, "run_id": "r-1"})));
    assert_eq!(second, ("response".to_owned(), json!({"accepted": true, "run_id": "r-2"})));
    assert_eq!(*world.keys_seen.lock().unwrap(), ["old", "new", "new"], "kept once it was good");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let statuses: Vec<&Value> = lines.iter().filter_map(|line| line["fields"].get("status")).collect();
    assert_eq!(statuses, [202, 202], "one line a delivery");
    assert!(!log.contains("\"old\"") && !log.contains("\"new\""), "no key in the log");
}

/// The app refuses a rotated key with another status while it is flooded with unknown keys.
#[tokio::test]
async fn rate_limited_keys_are_fetched_again() {
    let (world, mut answers) = world([event(1)], ["flooded", "new"]);
    let address = serve(world.clone()).await;
    let mut runner = runner_at(&address);
    let first = answer(&mut answers).await;
    runner.kill().unwrap();
    runner.wait().unwrap();
    assert_eq!(first, ("response".to_owned(), json!({"accepted": true, "run_id": "r-1"})));
    assert_eq!(*world.keys_seen.lock().unwrap(), ["flooded", "new"]);
}

/// A rotation has stored a key that the app does not know yet. A runner that starts now delivers with the one before.
#[tokio::test]
async fn previous_keys_work_during_a_rotation() {
    let (world, mut answers) = world_before([event(1), event(2)], ["early", "early"], Some("new"));
    let address = serve(world.clone()).await;
    let mut runner = runner_at(&address);
    let first = answer(&mut answers).await;
    let second = answer(&mut answers).await;
    runner.kill().unwrap();
    runner.wait().unwrap();
    assert_eq!(first, ("response".to_owned(), json!({"accepted": true, "run_id": "r-1"})));
    assert_eq!(second, ("response".to_owned(), json!({"accepted": true, "run_id": "r-2"})));
    assert_eq!(*world.keys_seen.lock().unwrap(), ["early", "new", "new"], "the one that was good is kept");
}

/// A kept key was revoked, and the secret has no older version that the app knows.
#[tokio::test]
async fn unknown_keys_fail_a_delivery() {
    for (previous, keys_seen) in [(None, vec!["early"]), (Some("older"), vec!["early", "older"])] {
        let (world, mut answers) = world_before([event(1)], ["early", "early"], previous);
        let address = serve(world.clone()).await;
        let mut runner = runner_at(&address);
        let first = answer(&mut answers).await;
        runner.kill().unwrap();
        runner.wait().unwrap();
        let sentence = "status 401 is not an answer of the app";
        assert_eq!(first, ("error".to_owned(), json!({"errorType": "NotTheApp", "errorMessage": sentence})));
        assert_eq!(*world.keys_seen.lock().unwrap(), keys_seen);
    }
}

/// Each variable is read by its old name, with a warning.
#[tokio::test]
async fn old_variables_are_read_with_a_warning() {
    let (world, mut answers) = world([event(1)], ["new"]);
    let address = serve(world).await;
    let mut runner = runner_with("", &address);
    assert_eq!(answer(&mut answers).await.0, "response");
    runner.kill().unwrap();
    let log = String::from_utf8(runner.wait_with_output().unwrap().stderr).unwrap();

    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["fields"].clone());
    let warned: Vec<Value> = lines.map(|fields| json!([fields["old"], fields["new"]])).collect();
    for old in ["APP_BASE_URL", "SCHEDULER_API_KEY_SECRET_ARN"] {
        assert!(warned.contains(&json!([old, format!("CRONBOX_{old}")])), "{log}");
    }
}

fn runner_at(address: &str) -> Child {
    runner_with("CRONBOX_", address)
}

/// A runner whose own variables begin with `prefix`.
fn runner_with(prefix: &str, address: &str) -> Child {
    Command::new(RUNNER)
        .env_clear()
        .envs([
            ("AWS_LAMBDA_RUNTIME_API", address),
            ("AWS_LAMBDA_FUNCTION_NAME", "runner"),
            ("AWS_LAMBDA_FUNCTION_VERSION", "1"),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128"),
            ("AWS_LAMBDA_LOG_GROUP_NAME", "g"),
            ("AWS_LAMBDA_LOG_STREAM_NAME", "s"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
            ("AWS_ENDPOINT_URL_SECRETS_MANAGER", format!("http://{address}/secrets").as_str()),
        ])
        .env(format!("{prefix}APP_BASE_URL"), format!("http://{address}"))
        .env(format!("{prefix}SCHEDULER_API_KEY_SECRET_ARN"), KEY_ARN)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The content of a dead-letter message, and the fields of the metric filter: a proxy's page has status 200, too.
#[tokio::test]
async fn failures_have_a_name_and_a_sentence() {
    let unfilled = json!({"workflow_id": 1, "scheduled_time": "<aws.scheduler.scheduled-time>"});
    let (world, mut answers) = world([event(PAGE), unfilled, event(1)], ["new"]);
    let address = serve(world).await;
    let mut runner = runner_at(&address);
    let page = answer(&mut answers).await;
    let not_a_fire = answer(&mut answers).await;
    assert_eq!(answer(&mut answers).await.0, "response");
    runner.kill().unwrap();
    let log = String::from_utf8(runner.wait_with_output().unwrap().stderr).unwrap();

    let sentence = "status 200 is not an answer of the app";
    assert_eq!(page, ("error".to_owned(), json!({"errorType": "NotTheApp", "errorMessage": sentence})));
    assert_eq!((not_a_fire.0.as_str(), &not_a_fire.1["errorType"]), ("error", &json!("NotAFire")));
    let fields = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["fields"].clone());
    let reply: Vec<(Value, Value)> = fields
        .filter(|fields| fields["step"] == 6)
        .map(|fields| (fields["status"].clone(), fields["accepted"].clone()))
        .collect();
    assert_eq!(reply, [(json!(200), json!(false)), (json!(0), json!(false)), (json!(202), json!(true))]);
}

fn event(workflow: i64) -> Value {
    json!({"workflow_id": workflow, "scheduled_time": "2026-03-29T07:00:00Z"})
}

fn world(
    events: impl IntoIterator<Item = Value>,
    secrets: impl IntoIterator<Item = &'static str>,
) -> (Arc<World>, UnboundedReceiver<(String, Value)>) {
    world_before(events, secrets, None)
}

/// A world whose secret has a previous version.
fn world_before(
    events: impl IntoIterator<Item = Value>,
    secrets: impl IntoIterator<Item = &'static str>,
    previous: Option<&'static str>,
) -> (Arc<World>, UnboundedReceiver<(String, Value)>) {
    let (answers, heard) = unbounded_channel();
    let world = World {
        events: Mutex::new(events.into_iter().collect()),
        answers,
        secrets: Mutex::new(secrets.into_iter().collect()),
        previous,
        keys_seen: Mutex::default(),
    };
    (Arc::new(world), heard)
}

async fn serve(world: Arc<World>) -> String {
    let app = Router::new()
        .route("/2018-06-01/runtime/invocation/next", get(next))
        .route("/2018-06-01/runtime/invocation/{id}/{kind}", post(answered))
        .route("/secrets", post(secret))
        .route("/secrets/", post(secret))
        .route("/api/v1/cron/workflows/{target}", post(invoke))
        .with_state(world);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn answer(answers: &mut UnboundedReceiver<(String, Value)>) -> (String, Value) {
    tokio::time::timeout(Duration::from_secs(60), answers.recv()).await.expect("an answer in time").unwrap()
}

async fn next(State(world): State<Arc<World>>) -> Response {
    let event = world.events.lock().unwrap().pop_front();
    let Some(event) = event else { return std::future::pending().await };
    let headers = [
        ("lambda-runtime-aws-request-id", "8476a536-e9f4-11e8-9739-2dfe598c3fcd"),
        ("lambda-runtime-deadline-ms", "99999999999999"),
        ("lambda-runtime-invoked-function-arn", "arn:aws:lambda:us-east-1:123456789012:function:runner"),
    ];
    (headers, Json(event)).into_response()
}

async fn answered(
    State(world): State<Arc<World>>,
    Path((_, kind)): Path<(String, String)>,
    body: String,
) -> StatusCode {
    // Lambda's client names no content type.
    let body = serde_json::from_str(&body).unwrap();
    world.answers.send((kind, body)).unwrap();
    StatusCode::ACCEPTED
}

async fn secret(State(world): State<Arc<World>>, body: String) -> Response {
    // The client's content type is not JSON's.
    let request: Value = serde_json::from_str(&body).unwrap();
    let secret = match request["VersionStage"].as_str() {
        Some("AWSPREVIOUS") => world.previous,
        _ => world.secrets.lock().unwrap().pop_front(),
    };
    match secret {
        Some(secret) => Json(json!({"ARN": KEY_ARN, "Name": "key", "SecretString": secret})).into_response(),
        None => (StatusCode::BAD_REQUEST, Json(json!({"__type": "ResourceNotFoundException"}))).into_response(),
    }
}

async fn invoke(State(world): State<Arc<World>>, Path(target): Path<String>, headers: HeaderMap) -> Response {
    let key = headers["x-api-key"].to_str().unwrap().to_owned();
    world.keys_seen.lock().unwrap().push(key.clone());
    if key == "flooded" {
        return (StatusCode::TOO_MANY_REQUESTS, Json(json!({"code": "rate_limited"}))).into_response();
    }
    if key != "new" {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    if target == format!("{PAGE}:invoke") {
        return "<html>Welcome</html>".into_response();
    }
    let run = format!("r-{}", target.trim_end_matches(":invoke"));
    (StatusCode::ACCEPTED, Json(json!({"accepted": true, "run_id": run}))).into_response()
}
