//! Traces: the real programs send their spans to a collector, from an edit to its schedule and from a fire to the receiver.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::any;
use chrono::{DateTime, DurationRound as _, SecondsFormat, TimeDelta, Utc};
use local::stack::StackOptions;
use reqwest::Method;
use serde_json::{Value, json};
use tests::{Api, Collected, Collecting, Collector, PATIENCE, Runtime, Story};
use tokio::net::TcpListener;
use tokio::process::Child;

use crate::startup::{program, run, serve_with, stop};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa01020304";

/// The programs with their collector, which replace those of the story.
struct World {
    s: Story,
    collector: Collector,
    app: Child,
    url: String,
    /// The next minute, for which the workflow is fired.
    time: DateTime<Utc>,
    runtime: Runtime,
    runner: Child,
    /// The headers of the requests that the receiver got.
    received: Arc<Mutex<Vec<HeaderMap>>>,
    receiver: String,
}

impl World {
    /// Starts the app and the runner with these variables for traces.
    async fn start(collector: Collector, settings: &[(&str, &str)]) -> Self {
        let s = Story::with(StackOptions { app: |config| config.executor_slots = 0, ..StackOptions::default() }).await;
        let (app, url) = serve_with(&s.dsn(), settings).await;
        let runtime = Runtime::start().await;
        let mut runner = program("cronbox-runner");
        runner.envs(runtime.environment("runner")).envs(settings.iter().copied());
        runner.env("CRONBOX_APP_BASE_URL", &url).env("CRONBOX_SCHEDULER_API_KEY", &s.keys.scheduler);
        let runner = runner.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let received = Arc::<Mutex<Vec<HeaderMap>>>::default();
        let receiver = serve_receiver(received.clone()).await;
        let time = next_minute(&s).await;
        Self { s, collector, app, url, time, runtime, runner, received, receiver }
    }

    /// A client with a trace creates a workflow, whose action has secrets wherever it can. It is due in the next minute only.
    async fn create(&self) -> i64 {
        let cron = self.time.format("%-M %-H * * *").to_string();
        let action = json!({
            "type": "http", "method": "POST", "url": format!("{}/canary-path?token=canary-query", self.receiver),
            "headers": {"authorization": "Bearer canary-header"}, "body": {"secret": "canary-body"},
        });
        let body = json!({"name": "canary-name", "cron_schedule": cron, "timezone": "UTC", "action": action,
                          "starting_inputs": {"password": "canary-input"}});
        let request = Api::new(&self.url, &self.s.keys.editor).request(Method::POST, "/api/v1/workflows").json(&body);
        let request = request.header("traceparent", format!("00-{TRACE}-{PARENT}-01"));
        let made = tests::send_request(request).await.expect(201);
        assert_eq!(made.headers["x-request-id"], TRACE);
        made.id()
    }

    /// Publishes with the real publisher.
    async fn publish(&self, settings: &[(&str, &str)]) {
        let mut publisher = program("cronbox-publisher");
        publisher.envs(self.s.publisher_environment()).envs(settings.iter().copied()).arg("--once");
        let once = run(&mut publisher).await;
        assert!(once.status.success(), "{}", String::from_utf8_lossy(&once.stderr));
    }

    /// EventBridge fires the workflow: the runner delivers the fire to the app. Call it before the schedule is published,
    /// because the stand-in delivers the same fire when its minute comes.
    async fn fire(&mut self, workflow: i64) -> Value {
        let edit: Option<String> = sqlx::query_scalar("SELECT payload->>'traceparent' FROM outbox_events LIMIT 1")
            .fetch_one(&self.s.pool)
            .await
            .unwrap();
        let time = self.time.to_rfc3339_opts(SecondsFormat::Secs, true);
        let event = json!({"workflow_id": workflow, "scheduled_time": time, "traceparent": edit});
        self.runtime.invoke(event).await.returned()
    }

    async fn end(mut self) {
        self.runner.kill().await.unwrap();
        stop(&mut self.app).await;
        self.s.end_early().await;
    }
}

/// The next minute. It is not near, so that the workflow exists before it.
async fn next_minute(s: &Story) -> DateTime<Utc> {
    loop {
        let now = s.clock.now();
        let next = now.duration_trunc(TimeDelta::minutes(1)).unwrap() + TimeDelta::minutes(1);
        if next - now > TimeDelta::seconds(10) {
            return next;
        }
        tokio::time::sleep((next - now).to_std().unwrap()).await;
    }
}

/// A receiver that answers 200.
async fn serve_receiver(received: Arc<Mutex<Vec<HeaderMap>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let receive = async move |headers: HeaderMap| received.lock().unwrap().push(headers);
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(any(receive))).await });
    url
}

#[track_caller]
fn assert_child(child: &Collected, parent: &Collected, kind: &str) {
    assert_eq!(
        (&child.trace, &child.parent, &*child.kind),
        (&parent.trace, &parent.id, kind),
        "{child:#?} {parent:#?}"
    );
}

/// The trace of a client continues through the edit, the schedule, the fire, the run and the request to the receiver.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_lead_from_edit_to_receiver() {
    let collector = Collector::start(Collecting::Accepts).await;
    let url = collector.url.clone();
    let settings = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*url), ("OTEL_EXPORTER_OTLP_HEADERS", "x-token=canary-token")];
    let mut w = World::start(collector, &settings).await;
    let workflow = w.create().await;
    assert_eq!(w.fire(workflow).await["accepted"], true);
    let sent_by_runner = |w: &World| {
        let of_runner = |span: &&Collected| span.resource["service.name"] == "cronbox-runner";
        w.collector.spans().iter().filter(of_runner).count()
    };
    let mut expected = 2;
    // The runner waits half a second at most for the collector, and a loaded machine may need longer. Then the fire comes again.
    while sent_by_runner(&w) != expected && expected < 10 {
        w.fire(workflow).await;
        expected += 2;
    }
    let sent = sent_by_runner(&w);
    assert_eq!(sent, expected, "a Lambda sends its spans before it returns, because it is frozen afterwards");
    w.publish(&settings).await;

    let edit = w.collector.span("cronbox-app", "POST /api/v1/workflows").await;
    assert_eq!((&*edit.trace, &*edit.parent, &*edit.kind), (TRACE, PARENT, "SERVER"));
    assert_eq!((edit.attribute("http.response.status_code"), edit.is_error), ("201", false));
    let row = w.collector.span("cronbox-publisher", "process outbox_events").await;
    assert_child(&row, &edit, "CONSUMER");
    assert_eq!((row.attribute("cronbox.result"), row.attribute("cronbox.workflow.revision")), ("created", "1"));
    let call = w.collector.span("cronbox-publisher", "Scheduler/CreateSchedule").await;
    assert_child(&call, &row, "CLIENT");
    assert_eq!(call.attribute("cronbox.schedule.name"), format!("wf-{workflow}-dev"));
    assert_eq!(
        (call.attribute("cronbox.workflow.id"), call.attribute("cronbox.result")),
        (&*workflow.to_string(), "done")
    );

    w.s.until("SELECT count(*) FROM runs WHERE state = 'succeeded'", 1).await;
    let fire = w.collector.span("cronbox-runner", "deliver fire").await;
    assert_child(&fire, &edit, "CONSUMER");
    let post = w.collector.span("cronbox-runner", "POST").await;
    assert_child(&post, &fire, "CLIENT");
    let invoke = w.collector.span("cronbox-app", "POST /api/v1/cron/workflows/{id}:invoke").await;
    assert_child(&invoke, &post, "SERVER");
    assert_eq!(invoke.attribute("cronbox.decision"), "accepted");
    let attempt = w.collector.span("cronbox-app", "execute run").await;
    assert_child(&attempt, &invoke, "CONSUMER");
    assert_eq!(attempt.attribute("cronbox.run.id"), invoke.attribute("cronbox.run.id"));
    assert_eq!(
        (attempt.attribute("cronbox.run.attempt"), attempt.attribute("cronbox.run.outcome")),
        ("1", "succeeded")
    );
    let request = w.collector.span("cronbox-app", "POST").await;
    assert_child(&request, &attempt, "CLIENT");
    assert_eq!(request.attribute("http.response.status_code"), "200");
    let received = w.received.lock().unwrap()[0]["traceparent"].to_str().unwrap().to_owned();
    assert_eq!(received, format!("00-{TRACE}-{}-01", request.id), "the receiver continues the span of the request");

    assert_eq!(edit.resource["deployment.environment.name"], "dev");
    assert!(w.collector.headers().iter().all(|headers| headers["x-token"] == "canary-token"));
    let all = format!("{:#?}", w.collector.spans());
    for secret in ["canary", &w.s.keys.editor, &w.s.keys.scheduler, &w.receiver] {
        assert!(!all.contains(secret), "{secret} is in a span: {all}");
    }
    w.end().await;
}

/// A run that another instance continues, or the second attempt of one, is in the trace of its fire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claimed_runs_continue_the_trace() {
    let collector = Collector::start(Collecting::Accepts).await;
    let url = collector.url.clone();
    // No slots are offered to fires, so a claim starts the run, as on another instance.
    let settings = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*url), ("CRONBOX_TEAM_RUNNING_RUNS", "5")];
    let mut w = World::start(collector, &settings).await;
    let workflow = w.create().await;
    assert_eq!(w.fire(workflow).await["accepted"], true);
    let invoke = w.collector.span("cronbox-app", "POST /api/v1/cron/workflows/{id}:invoke").await;
    assert_child(&w.collector.span("cronbox-app", "execute run").await, &invoke, "CONSUMER");
    w.s.until("SELECT count(*) FROM runs WHERE state = 'succeeded'", 1).await;
    let api = Api::new(&w.url, &w.s.keys.editor);
    let run = api.get("/api/v1/runs").await.expect(200).json["items"][0]["id"].as_str().unwrap().to_owned();
    let ended = api.get(&format!("/api/v1/runs/{run}")).await.expect(200).json;
    assert_eq!(ended["trace_id"], invoke.trace, "an ended run still names its trace");
    w.end().await;
}

/// A client that is not sampled is not recorded anywhere, and its receiver learns that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsampled_traces_are_not_sent() {
    let collector = Collector::start(Collecting::Accepts).await;
    let url = collector.url.clone();
    let settings = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*url), ("OTEL_TRACES_SAMPLER", "parentbased_always_off")];
    let mut w = World::start(collector, &settings).await;
    let cron = w.time.format("%-M %-H * * *").to_string();
    let body = json!({"name": "n", "cron_schedule": cron, "timezone": "UTC",
                      "action": {"type": "http", "method": "POST", "url": w.receiver}});
    let made = Api::new(&w.url, &w.s.keys.editor).post("/api/v1/workflows", &body).await.expect(201);
    assert_eq!(w.fire(made.id()).await["accepted"], true);
    w.s.until("SELECT count(*) FROM runs WHERE state = 'succeeded'", 1).await;
    let trace = made.headers["x-request-id"].to_str().unwrap();
    let received = w.received.lock().unwrap()[0]["traceparent"].to_str().unwrap().to_owned();
    assert!(received.starts_with(&format!("00-{trace}-")) && received.ends_with("-00"), "{received} {trace}");
    // A client that is sampled is, although the programs begin no trace. Its spans come after those above would.
    w.create().await;
    w.collector.span("cronbox-app", "POST /api/v1/workflows").await;
    assert_eq!(w.collector.spans().len(), 1);
    w.end().await;
}

/// Without an endpoint no program connects, and everything is as before: the edit has the header of its client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traces_are_off_without_an_endpoint() {
    let collector = Collector::start(Collecting::Accepts).await;
    let url = collector.url.clone();
    for settings in [
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", ""), ("OTEL_SERVICE_NAME", "mine")],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", &*url), ("OTEL_SDK_DISABLED", "true")],
    ] {
        let mut w = World::start(collector.clone(), settings).await;
        let workflow = w.create().await;
        let edit: String = sqlx::query_scalar("SELECT payload->>'traceparent' FROM outbox_events LIMIT 1")
            .fetch_one(&w.s.pool)
            .await
            .unwrap();
        assert_eq!(edit, format!("00-{TRACE}-{PARENT}-01"));
        assert_eq!(w.fire(workflow).await["accepted"], true);
        w.s.until("SELECT count(*) FROM runs WHERE state = 'succeeded' AND traceparent IS NULL", 1).await;
        assert!(!w.received.lock().unwrap()[0].contains_key("traceparent"));
        w.publish(settings).await;
        w.end().await;
    }
    assert_eq!(collector.requests(), 0);
}

/// A collector that never answers, one that refuses, and one that answers nonsense: each edit, publication, fire and run is
/// as without it. What the collector refuses is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_collectors_change_no_decision() {
    for collecting in [Collecting::Hangs, Collecting::Refuses, Collecting::Lies] {
        let collector = Collector::start(collecting).await;
        let url = collector.url.clone();
        let settings = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*url)];
        let mut w = World::start(collector, &settings).await;
        let workflow = w.create().await;
        assert_eq!(w.fire(workflow).await["accepted"], true, "{collecting:?}");
        w.publish(&settings).await;
        w.s.until("SELECT count(*) FROM runs WHERE state = 'succeeded'", 1).await;
        // Each program has reached it.
        for (service, name) in [
            ("cronbox-app", "POST /api/v1/workflows"),
            ("cronbox-runner", "deliver fire"),
            ("cronbox-publisher", "process outbox_events"),
        ] {
            w.collector.span(service, name).await;
        }
        if collecting == Collecting::Refuses {
            until_counted(&w.url).await;
        }
        w.end().await;
    }
}

/// Waits until the app has counted spans that were not delivered.
async fn until_counted(url: &str) {
    let began = Instant::now();
    loop {
        let page = Api::without_key(url).get("/metrics").await.text;
        let counted = "cronbox_spans_dropped_total{reason=\"not_delivered\"} ";
        let count = page.lines().find_map(|line| line.strip_prefix(counted)).unwrap();
        if count != "0" {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{page}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
