//! The publisher as a Lambda: each invocation runs one drain and returns its report.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use chrono::TimeDelta;
use schedule::Clock;
use serde_json::{Value, json};
use tests::PATIENCE;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::ChildStdout;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::world::World;

/// A deadline that no invocation reaches.
const ENDLESS: TimeDelta = TimeDelta::days(10_000);

/// Lambda's runtime API, which returns one invocation at a time.
pub(crate) struct Runtime {
    invocations: tokio::sync::Mutex<UnboundedReceiver<Value>>,
    answers: UnboundedSender<(String, Value)>,
    /// The time until the deadline of the next invocations.
    left: Mutex<TimeDelta>,
}

/// Sends invocations, and receives the answers: `response` or `error`, and the body.
pub(crate) type Invoker = (UnboundedSender<Value>, UnboundedReceiver<(String, Value)>);

impl Runtime {
    pub(crate) fn new() -> (Arc<Runtime>, Invoker) {
        let (invoke, invocations) = unbounded_channel();
        let (answers, answered) = unbounded_channel();
        let invocations = tokio::sync::Mutex::new(invocations);
        let runtime = Runtime { invocations, answers, left: Mutex::new(ENDLESS) };
        (Arc::new(runtime), (invoke, answered))
    }

    /// From now on each invocation has this long until its deadline.
    pub(crate) fn end_after(&self, left: TimeDelta) {
        *self.left.lock().unwrap() = left;
    }
}

async fn next(State(runtime): State<Arc<Runtime>>) -> Response {
    let Some(event) = runtime.invocations.lock().await.recv().await else { return StatusCode::GONE.into_response() };
    let deadline = Clock::System.now() + *runtime.left.lock().unwrap();
    let headers = [
        ("lambda-runtime-aws-request-id", "8476a536-e9f4-11e8-9739-2dfe598c3fcd".to_owned()),
        ("lambda-runtime-deadline-ms", deadline.timestamp_millis().to_string()),
        ("lambda-runtime-invoked-function-arn", "arn:aws:lambda:us-east-1:123456789012:function:publisher".to_owned()),
    ];
    (headers, Json(event)).into_response()
}

async fn answered(
    State(runtime): State<Arc<Runtime>>,
    Path((_, kind)): Path<(String, String)>,
    body: String,
) -> StatusCode {
    runtime.answers.send((kind, serde_json::from_str(&body).unwrap())).unwrap();
    StatusCode::ACCEPTED
}

pub(crate) async fn serve(runtime: Arc<Runtime>) -> String {
    let app = Router::new()
        .route("/2018-06-01/runtime/invocation/next", get(next))
        .route("/2018-06-01/runtime/invocation/{id}/{kind}", post(answered))
        .with_state(runtime);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_invocation_drains_and_returns_its_report() {
    let world = World::new().await;
    let (runtime, (invoke, mut answered)) = Runtime::new();
    let mut lambda = world.lambda(&serve(runtime.clone()).await);

    let workflow = world.create("0 9 * * *", "UTC").await;
    invoke.send(json!({"source": "aws.events"})).unwrap();
    let first = answer(&mut answered).await;
    assert_eq!((first.0.as_str(), &first.1["created"], &first.1["remaining"]), ("response", &json!(1), &json!(0)));

    // An invocation with little time left claims nothing and reports its metrics. The next one publishes.
    world.create("0 10 * * *", "UTC").await;
    runtime.end_after(TimeDelta::milliseconds(9_900));
    invoke.send(json!({})).unwrap();
    let late = answer(&mut answered).await;
    assert_eq!((&late.1["created"], &late.1["remaining"]), (&json!(0), &json!(1)));
    runtime.end_after(ENDLESS);
    invoke.send(json!({})).unwrap();
    assert_eq!(answer(&mut answered).await.1["created"], json!(1));

    // On request it sweeps now, even soon after the last sweep.
    world.skip(Duration::from_secs(120)).await;
    world.meddle(reqwest::Method::DELETE, workflow, json!({})).await;
    invoke.send(json!({"sweep": true})).unwrap();
    answer(&mut answered).await;
    assert!(world.schedule(workflow).await.is_some());

    world.assert_settled().await;
    let mut lines = BufReader::new(lambda.stdout.take().unwrap()).lines();
    let reply = [metrics(&mut lines).await, metrics(&mut lines).await, metrics(&mut lines).await];
    assert_eq!(reply.clone().map(|line| line["created"].as_i64().unwrap()), [1, 0, 1], "each reports its own");
    let calls = reply.clone().map(|line| line["ApiCalls_done"].as_i64().unwrap());
    assert_eq!(calls, [2, 0, 1], "the first tick of all sweeps, too: one list");
    assert_eq!(reply.clone().map(|line| line["SweepListed"].as_i64().unwrap()), [1, 0, 0]);
    assert_eq!((&reply[1]["remaining"], &reply[2]["remaining"]), (&json!(1), &json!(0)));
    let swept = metrics(&mut lines).await;
    assert_eq!((&swept["SweepListed"], &swept["SweepRead"]), (&json!(1), &json!(1)), "never compared, so read in full");
    for metric in ["Missed", "CaughtUp", "Abandoned", "FiresDisagree", "FiguresUnread", "Held"] {
        assert_eq!(reply[0][metric], json!(0), "{metric} is reported, and normally zero");
    }
    // This world has no watchdog, so its ledger lags, and the lag is still reported.
    assert!(reply[0]["LedgerLagSeconds"].as_f64().unwrap() > 0.0);
    assert!(reply[1]["OutboxLagSeconds"].as_f64().unwrap() > 0.0 && reply[2]["OutboxLagSeconds"] == json!(0.0));
}

/// Reads the next line on stdout. Asserts that it is in CloudWatch's format, with only declared metrics.
pub(crate) async fn metrics(lines: &mut Lines<BufReader<ChildStdout>>) -> Value {
    let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("a line").unwrap().unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    let directive = &line["_aws"]["CloudWatchMetrics"][0];
    assert_eq!((&directive["Namespace"], &directive["Dimensions"]), (&json!("cronbox"), &json!([["Env"]])));
    assert_eq!(line["Env"], "dev");
    assert!(line["_aws"]["Timestamp"].as_i64().unwrap() > 1_700_000_000_000);
    for metric in directive["Metrics"].as_array().unwrap() {
        assert!(line[metric["Name"].as_str().unwrap()].is_number(), "{metric} of {line}");
    }
    line
}

pub(crate) async fn answer(answers: &mut UnboundedReceiver<(String, Value)>) -> (String, Value) {
    tokio::time::timeout(PATIENCE, answers.recv()).await.expect("an answer in time").unwrap()
}

/// A tick waits for retries that become due within its time. Its two drains would otherwise try the workflow only
/// twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_is_made_within_its_tick() {
    let world = World::new().await;
    let (runtime, (invoke, mut answered)) = Runtime::new();
    let _lambda = world.lambda(&serve(runtime.clone()).await);
    let workflow = world.create("0 9 * * *", "UTC").await;
    let broken = crate::proxy::Answer::Refuse(500, "InternalServerException", "");
    world.front.next(&crate::world::name(workflow), [broken, broken]);
    invoke.send(json!({})).unwrap();
    let (kind, report) = answer(&mut answered).await;
    assert_eq!((kind.as_str(), &report["retried"], &report["remaining"]), ("response", &json!(2), &json!(0)));
    assert!(world.schedule(workflow).await.is_some());
}
