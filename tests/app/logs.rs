//! The log of the app: one event is one line, in both forms, and each request has a line and an id.

use std::process::Stdio;

use local::stack::StackOptions;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Connection as _;
use tests::{Answer, Api, PATIENCE, Story};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::startup::{app, stop};

/// A running app, and what it writes to standard error.
struct Logging {
    process: Child,
    url: String,
    coming: UnboundedReceiver<String>,
    lines: Vec<String>,
}

impl Logging {
    async fn start(dsn: &str, form: &str) -> Logging {
        let mut command = app();
        command.args(["serve", "--log-format", form, "--bind-addr", "127.0.0.1:0"]).env("DATABASE_URL", dsn);
        // A filter with which events were once lost after a statement of the database.
        command.env("RUST_LOG", "info,app=debug").env("CRONBOX_JOBS_ENABLED", "false");
        command.env("CRONBOX_SHUTDOWN_DRAIN_SECS", "1");
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(process.stderr.take().unwrap()).lines();
        let (line, coming) = unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(said)) = said.next_line().await {
                let _is_read = line.send(said);
            }
        });
        let mut logging = Logging { process, url: String::new(), coming, lines: Vec::new() };
        let listens = logging.line_with("listens on http://").await;
        let (_, address) = listens.split_once("listens on ").unwrap();
        logging.url = address.split(['"', ' ']).next().unwrap().to_owned();
        logging
    }

    /// The first line that contains this text, among those already read or still to come.
    async fn line_with(&mut self, text: &str) -> String {
        if let Some(line) = self.lines.iter().find(|line| line.contains(text)) {
            return line.clone();
        }
        loop {
            let line = tokio::time::timeout(PATIENCE, self.coming.recv()).await;
            let line = line.unwrap_or_else(|_| panic!("no line with {text}: {:#?}", self.lines)).expect("it runs");
            self.lines.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// The line of the request with this answer, in the form JSON.
    async fn line_of(&mut self, answer: &Answer) -> Value {
        let id = answer.headers["x-request-id"].to_str().unwrap().to_owned();
        let is_line = |line: &&String| line.contains(&id) && line.contains("request answered");
        while !self.lines.iter().any(|line| is_line(&line)) {
            let line = tokio::time::timeout(PATIENCE, self.coming.recv()).await;
            self.lines.push(line.unwrap_or_else(|_| panic!("no line of {id}: {:#?}", self.lines)).expect("it runs"));
        }
        assert_eq!(self.lines.iter().filter(is_line).count(), 1);
        serde_json::from_str(self.lines.iter().find(is_line).unwrap()).unwrap()
    }

    async fn stop(mut self) -> Vec<String> {
        stop(&mut self.process).await;
        while let Some(line) = self.coming.recv().await {
            self.lines.push(line);
        }
        self.lines
    }
}

/// The fields of a line, without its duration.
fn fields(line: &Value) -> Value {
    let mut fields = line["fields"].clone();
    let duration = fields.as_object_mut().unwrap().remove("duration_ms").unwrap();
    assert!(duration.as_f64().is_some_and(|duration| duration >= 0.0), "{line}");
    fields
}

#[tokio::test]
async fn each_request_has_a_line_and_an_id() {
    let s = Story::today().await;
    let mut log = Logging::start(&s.dsn(), "json").await;
    let keys = s.admin().get("/api/v1/keys").await.expect(200).json;
    let key = keys["items"].as_array().unwrap().iter().find(|key| key["kind"] == "team").unwrap();
    let prefix = key["prefix"].as_str().unwrap();
    let api = Api::new(&log.url, &s.keys.editor);

    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let request = api.request(Method::GET, "/api/v1/workflows?q=canary");
    let read = tests::send_request(request.header("traceparent", format!("00-{trace}-00f067aa01020304-01"))).await;
    assert_eq!((read.status, read.headers["x-request-id"].to_str().unwrap()), (200, trace));
    let line = log.line_of(&read).await;
    assert_eq!((&line["level"], &line["target"]), (&json!("INFO"), &json!("app::api::access_log")));
    let expected = json!({"message": "request answered", "method": "GET", "route": "/api/v1/workflows", "status": 200,
                          "request_id": trace, "key": prefix});
    assert_eq!(fields(&line), expected);

    let body = json!({"name": "a", "cron_schedule": "@daily", "action": {"type": "log", "message": "hi"}});
    let made = api.post("/api/v1/workflows", &body).await.expect(201);
    let id = made.headers["x-request-id"].to_str().unwrap().to_owned();
    let traced: String =
        sqlx::query_scalar("SELECT payload->>'traceparent' FROM outbox_events ORDER BY id DESC LIMIT 1")
            .fetch_one(&s.pool)
            .await
            .unwrap();
    assert_eq!(traced.split('-').nth(1), Some(id.as_str()), "the edit has the id of its request");

    for (key, path, route, status, known) in [
        (&s.keys.editor, "/api/v1/workflows/7:pause", "/api/v1/workflows/{id}:pause", 404, json!(prefix)),
        (&"canary".to_owned(), "/api/v1/runs/canary:retry", "/api/v1/runs/{id}:retry", 401, Value::Null),
        (&s.keys.editor, "/canary", "none", 404, Value::Null),
    ] {
        let answer = Api::new(&log.url, key).post(path, &json!({})).await.expect(status);
        assert_eq!(answer.json["request_id"].as_str(), answer.headers["x-request-id"].to_str().ok(), "{path}");
        let line = fields(&log.line_of(&answer).await);
        let said = (&line["route"], &line["status"], line.get("key").unwrap_or(&Value::Null));
        assert_eq!(said, (&json!(route), &json!(status), &known), "{path}");
    }
    for line in log.stop().await {
        assert!(serde_json::from_str::<Value>(&line).is_ok_and(|line| line["fields"].is_object()), "{line}");
        assert!(!line.contains("canary") && !line.contains(&s.keys.editor), "{line}");
    }
    s.publish().await;
    s.end().await;
}

/// The id of a problem leads to its cause.
#[tokio::test]
async fn the_cause_of_a_500_has_its_id() {
    let s = Story::today().await;
    let mut log = Logging::start(&s.dsn(), "json").await;
    let mut owner = sqlx::PgConnection::connect(&s.owner_dsn()).await.unwrap();
    sqlx::raw_sql("ALTER TABLE jobs RENAME TO jobs_away").execute(&mut owner).await.unwrap();
    let failed = Api::new(&log.url, &s.keys.admin).get("/api/v1/jobs").await;
    sqlx::raw_sql("ALTER TABLE jobs_away RENAME TO jobs").execute(&mut owner).await.unwrap();
    failed.refused(500, "internal", None);
    let id = failed.json["request_id"].as_str().unwrap();
    let cause: Value = serde_json::from_str(&log.line_with("request failed").await).unwrap();
    assert_eq!((cause["level"].as_str(), cause["fields"]["request_id"].as_str()), (Some("ERROR"), Some(id)));
    assert!(cause["fields"]["error"].as_str().unwrap().contains("jobs"), "{cause}");
    assert!(!failed.text.contains("jobs"), "{}", failed.text);
    log.stop().await;
    s.end().await;
}

/// A message that contains a line of its own, in the app's form.
#[tokio::test]
async fn messages_of_tenants_forge_no_line() {
    let s = Story::with(StackOptions { app: |config| config.executor_slots = 0, ..Default::default() }).await;
    let forged = "hi\n2026-11-21T23:59:59.000001Z ERROR app::api: FORGED\r\u{2028}{\"level\":\"ERROR\"}";
    let wf = s.create_with(json!({"action": {"type": "log", "message": forged}})).await;
    for form in ["text", "json"] {
        let mut log = Logging::start(&s.dsn(), form).await;
        Api::new(&log.url, &s.keys.editor).post(&format!("/api/v1/schedules/{wf}:fire"), &json!({})).await.expect(202);
        let line = log.line_with("log action executed").await;
        assert!(line.contains("FORGED") && line.contains("workflow_id"), "{line}");
        log.line_with("succeeded").await;
        for line in log.stop().await {
            assert!(!line.starts_with("2026-11-21") && !line.starts_with("{\"level\":\"ERROR\"}"), "{line}");
            assert!(!line.contains(['\u{1b}', '\r', '\u{2028}']), "{line}");
            assert_eq!(form == "json", serde_json::from_str::<Value>(&line).is_ok(), "{line}");
        }
    }
    s.end().await;
}
