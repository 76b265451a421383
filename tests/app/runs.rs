//! Runs: each accepted run ends in spite of crashes, and its action reaches no forbidden address.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect};
use axum::routing::any;
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::Story;
use tokio::net::TcpListener;

/// A receiver of http actions on this machine, which records the requests.
#[derive(Clone, Default)]
struct Receiver(Arc<Mutex<Vec<(HeaderMap, Uri, Bytes)>>>);

impl Receiver {
    async fn start() -> (Self, String) {
        let receiver = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(any(receive)).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (receiver, url)
    }

    fn received(&self) -> Vec<(HeaderMap, Uri, Bytes)> {
        self.0.lock().unwrap().clone()
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, uri: Uri, body: Bytes) -> impl IntoResponse {
    receiver.0.lock().unwrap().push((headers, uri.clone(), body));
    match uri.path() {
        "/away" => Redirect::temporary("/inside").into_response(),
        "/broken" => (StatusCode::INTERNAL_SERVER_ERROR, "out of \0 order").into_response(),
        "/large" => "x".repeat(200 * 1024).into_response(),
        "/bytes" => vec![0xff_u8; 200 * 1024].into_response(),
        _ => "thanks".into_response(),
    }
}

async fn with_action(s: &Story, action: Value) -> WorkflowId {
    let wf = s.create_with(json!({"cron_schedule": "0 * * * *", "action": action, "starting_inputs": {"a": 1}})).await;
    s.publish().await;
    wf
}

#[tokio::test]
async fn http_actions_post_run_and_context() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let (receiver, url) = Receiver::start().await;
    let action =
        json!({"type": "http", "method": "POST", "url": format!("{url}/hook"), "headers": {"x-team": "books"}});
    let wf = with_action(&s, action).await;
    s.clock_to("2026-03-02T10:00:30Z").await;
    let runs = s.runs_of(wf).await;
    assert_eq!(runs[0]["state"], "succeeded");
    assert_eq!(runs[0]["result"], json!({"status": 200, "body": "thanks"}));
    let (headers, uri, body) = receiver.received().remove(1);
    assert_eq!((uri.path(), headers["x-team"].to_str().unwrap()), ("/hook", "books"));
    let body: Value = serde_json::from_slice(&body).unwrap();
    let next: Vec<_> = (11..16).map(|hour| format!("2026-03-02T{hour}:00:00Z")).collect();
    let expected = json!({
        "run_id": runs[0]["id"], "workflow_id": wf, "trigger": "schedule", "scheduled_time": "2026-03-02T10:00:00Z",
        "attempt": 1, "inputs": {"a": 1},
        "context": {"is_catch_up": false, "is_recovery": false, "lateness_s": 0,
                    "original_scheduled_time": "2026-03-02T10:00:00Z", "recovery_attempt_time": null,
                    "last_scheduled_time": "2026-03-02T09:00:00Z", "next_scheduled_times": next},
    });
    assert_eq!(body, expected);
    // The context can be read afterwards, also if the cron has changed since.
    s.editor().patch(&format!("/api/v1/workflows/{wf}"), &json!({"cron_schedule": "5 * * * *"})).await.expect(200);
    let path = format!("/api/v1/runs/{}", runs[0]["id"].as_str().unwrap());
    assert_eq!(s.editor().get(&path).await.expect(200).json["context"], expected["context"]);
    s.publish().await;
    s.end().await;
}

/// An http action with a body of its own sends only that body.
#[tokio::test]
async fn own_bodies_send_context_in_headers() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let (receiver, url) = Receiver::start().await;
    let action = json!({"type": "http", "method": "PUT", "url": url, "body": {"text": "ready"}});
    let wf = with_action(&s, action).await;
    s.clock_to("2026-03-02T09:00:30Z").await;
    let (headers, _, body) = receiver.received().remove(0);
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), json!({"text": "ready"}));
    assert_eq!(headers["x-cronbox-run-id"], s.runs_of(wf).await[0]["id"].as_str().unwrap());
    assert_eq!(headers["x-cronbox-scheduled-time"], "2026-03-02T09:00:00Z");
    assert_eq!(headers["x-cronbox-occurrence"], format!("{wf}/2026-03-02T09:00:00Z").as_str());
    let context: Value = serde_json::from_slice(headers["x-cronbox-context"].as_bytes()).unwrap();
    assert_eq!(context["is_catch_up"], false);
    s.end().await;
}

/// The run keeps the status and the first 64 KiB of the answer as text. A redirect is not followed.
#[tokio::test]
async fn answers_other_than_2xx_are_failures() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let (receiver, url) = Receiver::start().await;
    let get = |path: &str| json!({"type": "http", "method": "GET", "url": format!("{url}{path}")});
    let (away, broken) = (with_action(&s, get("/away")).await, with_action(&s, get("/broken")).await);
    let (large, bytes) = (with_action(&s, get("/large")).await, with_action(&s, get("/bytes")).await);
    s.clock_to("2026-03-02T09:00:30Z").await;
    let run = s.runs_of(away).await.remove(0);
    assert_eq!(run["error"], "the receiver answered 307 Temporary Redirect");
    assert!(receiver.received().iter().all(|(_, uri, _)| uri.path() != "/inside"), "a redirect was followed");
    let run = s.runs_of(broken).await.remove(0);
    assert_eq!((&run["state"], &run["result"]["status"]), (&json!("failed"), &json!(500)));
    assert_eq!(run["result"]["body"], "out of \u{fffd} order", "Postgres cannot store a NUL");
    let listed = s.runs_of(large).await.remove(0);
    assert_eq!(listed["result"], Value::Null, "too large for a list");
    assert!(listed["result_bytes"].is_i64(), "{listed}");
    let run = s.editor().get(&format!("/api/v1/runs/{}", listed["id"].as_str().unwrap())).await.expect(200).json;
    assert_eq!(run["result"]["body"].as_str().unwrap().len(), 64 * 1024);
    let listed = s.runs_of(bytes).await.remove(0);
    let run = s.editor().get(&format!("/api/v1/runs/{}", listed["id"].as_str().unwrap())).await.expect(200).json;
    let (body, third) = (run["result"]["body"].as_str().unwrap(), 64 * 1024 / 3);
    assert_eq!(body, "\u{fffd}".repeat(third), "each byte is three bytes of text");
    s.end().await;
}

/// The operator of this app has allowed no network.
#[tokio::test]
async fn private_addresses_get_no_request() {
    let options = local::stack::StackOptions {
        now: Some("2026-03-02T08:30:00Z".parse().unwrap()),
        app: |config| config.action_allow_cidrs.clear(),
        ..Default::default()
    };
    let s = Story::with(options).await;
    let (receiver, url) = Receiver::start().await;
    let port = url.rsplit(':').next().unwrap().to_owned();
    let mut workflows = Vec::new();
    for host in ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433", "0x7f.1", "127.1"] {
        let inside = format!("http://{host}:{port}/");
        let action = json!({"type": "http", "method": "GET", "url": inside});
        let name = uuid::Uuid::new_v4();
        let saved = s.editor().post("/api/v1/workflows", &json!({"name": name, "action": action})).await;
        saved.refused(400, "invalid_field", Some("action.url"));
        // Stores the URL directly, as if its name had resolved elsewhere when it was saved. The app checks it again
        // when it sends.
        let wf = with_action(&s, json!({"type": "http", "method": "GET", "url": "https://hooks.example/"})).await;
        let led_inside = "UPDATE workflows SET action = jsonb_set(action, '{url}', to_jsonb($2::text)) WHERE id = $1";
        sqlx::query(led_inside).bind(wf.0).bind(&inside).execute(&s.pool).await.unwrap();
        workflows.push((host, wf));
    }
    s.clock_to("2026-03-02T09:00:30Z").await;
    for (host, wf) in workflows {
        let run = s.runs_of(wf).await.remove(0);
        let error = run["error"].as_str().unwrap_or_default().to_owned();
        assert!(error.contains("is not a public address"), "{host}: {run}");
    }
    assert!(receiver.received().is_empty(), "a request reached the private address");
    s.end().await;
}

#[tokio::test]
async fn accepted_runs_survive_a_crash() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let wf = s.create("0 * * * *", "UTC").await;
    s.publish().await;
    // The state after an instance was killed between its 202 and its executor: an accepted run that no instance
    // executes.
    let run = uuid::Uuid::new_v4();
    let accepted = "INSERT INTO runs (id, workflow_id, trigger, state, scheduled_time, run_after, created_on)
                    VALUES ($1, $2, 'schedule', 'accepted', now(), '2026-03-02T08:30:00Z', '2026-03-02T08:30:00Z')";
    sqlx::query(accepted).bind(run).bind(wf.0).execute(&s.pool).await.unwrap();
    s.runs_end().await;
    assert_eq!(s.runs_of(wf).await[0]["state"], "succeeded");
    s.end().await;
}

#[tokio::test]
async fn two_instances_execute_each_run_once() {
    let mut s = Story::at("2026-03-02T08:30:00Z").await;
    s.another_url().await;
    let (receiver, url) = Receiver::start().await;
    let wf = with_action(&s, json!({"type": "http", "method": "POST", "url": url})).await;
    let accepted = "INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on)
                    SELECT gen_random_uuid(), $1, 'manual', 'accepted', '2026-03-02T08:30:00Z', '2026-03-02T08:30:00Z'
                      FROM generate_series(1, 300)";
    sqlx::query(accepted).bind(wf.0).execute(&s.pool).await.unwrap();
    s.runs_end().await;
    let mut ids: Vec<String> = receiver
        .received()
        .iter()
        .map(|(_, _, body)| serde_json::from_slice::<Value>(body).unwrap()["run_id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 300);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 300, "a run was executed twice");
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'succeeded' AND attempt = 1").await, 300);
    s.end().await;
}

#[tokio::test]
async fn a_finished_run_never_changes() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let wf = s.create("0 * * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T09:00:30Z").await;
    for change in ["state = 'running', finished_on = NULL", "result = '{}'", "error = 'late'"] {
        let changed = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("UPDATE runs SET {change}"))).execute(&s.pool).await;
        let refused = changed.unwrap_err();
        assert_eq!(refused.as_database_error().unwrap().constraint(), Some("runs_guard_terminal"), "{change}");
    }
    assert_eq!(s.runs(wf).await, "2026-03-02T09:00Z schedule succeeded");
    s.end().await;
}

#[tokio::test]
async fn a_timing_changes_only_with_its_revision() {
    let s = Story::today().await;
    s.create("0 9 * * *", "UTC").await;
    for change in [
        "cron_schedule = '0 10 * * *'",
        "cron_schedule = NULL",
        "timezone = 'Europe/Paris'",
        "state = 'paused'",
        "starts_at = now()",
        "ends_at = now()",
        "state = 'archived', revision = 0",
    ] {
        let changed =
            sqlx::raw_sql(sqlx::AssertSqlSafe(format!("UPDATE workflows SET {change}"))).execute(&s.pool).await;
        let refused = changed.unwrap_err();
        assert_eq!(refused.as_database_error().unwrap().constraint(), Some("workflows_guard_revision"), "{change}");
    }
    s.execute("UPDATE workflows SET name = 'renamed'").await;
    s.end().await;
}
