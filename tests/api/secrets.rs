//! Canaries: keys, header values, tokens and DSNs appear in no log, no error and no Debug output, even at TRACE.

use std::io;
use std::sync::{Arc, Mutex};

use schedule::WorkflowId;
use serde_json::json;
use tests::Story;
use tracing_subscriber::fmt::MakeWriter;

/// All log output of all crates, at all levels.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn no_secret_is_logged_or_returned() {
    let log = Log::default();
    tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(log.clone()).init();
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let (header, token, body) = ("canary-header-7c1", "canary-token-7c2", "canary-body-7c3");
    let action = json!({"type": "http", "method": "POST", "url": format!("http://127.0.0.1:9/hook?token={token}"),
                        "headers": {"authorization": header}, "body": {"secret": body}});
    let workflow = json!({"name": "secretive", "cron_schedule": "0 9 * * *", "action": action});
    let made = s.editor().post("/api/v1/workflows", &workflow).await.expect(201);
    assert_eq!(made.json["action"]["headers"], json!({"authorization": null}), "header values are write-only");
    s.editor().patch(&format!("/api/v1/workflows/{}", made.id()), &json!({"description": "x"})).await.expect(200);
    let key = s.admin().post("/api/v1/keys", &json!({"name": "k", "kind": "admin"})).await.expect(201).json;
    let key = key["key"].as_str().unwrap().to_owned();
    tests::Api::new(s.url(), &key).get("/api/v1/keys").await.expect(200);
    let wrong = format!("{key}x");
    tests::Api::new(s.url(), &wrong).get("/api/v1/keys").await.expect(401);
    s.publish().await;
    s.clock_to("2026-03-02T09:00:30Z").await;
    let run = s.runs_of(WorkflowId(made.id())).await.remove(0);
    assert_eq!(run["state"], "failed", "no server listens there");
    let audit = s.table("SELECT audit_log::text FROM audit_log").await;
    assert!(audit.contains("secretive"));
    let dsn = s.dsn();
    let password = dsn.split([':', '@']).nth(2).unwrap().to_owned();
    let logged = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(logged.contains("TRACE") && logged.contains("outbox: upsert of workflow"), "nothing was logged");
    for (canary, whose) in [
        (header, "the header's value"),
        (token, "the URL's token"),
        (body, "the body"),
        (key.as_str(), "the new key"),
        (s.keys.admin.as_str(), "the admin key"),
        (password.as_str(), "the database's password"),
    ] {
        let line = logged.lines().find(|line| line.contains(canary));
        assert!(line.is_none(), "{whose} is in the log: {line:?}");
        let is_header_or_key = whose != "the URL's token" && whose != "the body";
        assert!(!(is_header_or_key && audit.contains(canary)), "{whose} is in the audit log");
        assert!(!run.to_string().contains(canary), "{whose} is in the run");
    }
    s.end().await;
}
