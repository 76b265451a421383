//! Signatures: the receiver from the docs, which shares no code with the app, verifies each request.

use local::stack::StackOptions;
use serde_json::{Value, json};
use tests::Story;
use tokio::process::Command;

use crate::receiver::{Received, Receiver, accept, until_state};

const NOON: &str = "2026-03-02T12:00:00Z";

/// The Python code of docs/receivers.md, as a reader would copy it.
fn receiver_of_the_docs() -> &'static str {
    let docs = include_str!("../../../docs/receivers.md");
    docs.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a receiver in Python")
}

/// Passes the requests to it one by one; returns its statuses, and how often it processed one.
pub(super) async fn received_by_the_docs(secret: &str, requests: &[Received], now: i64) -> (Vec<u16>, u64) {
    let requests: Vec<Value> = requests
        .iter()
        .map(|request| {
            let text = |(name, value): (&axum::http::HeaderName, &axum::http::HeaderValue)| {
                (name.as_str().to_owned(), json!(value.to_str().unwrap()))
            };
            let headers: serde_json::Map<_, _> = request.headers.iter().map(text).collect();
            json!({"headers": headers, "body": String::from_utf8(request.body.to_vec()).unwrap()})
        })
        .collect();
    let program = format!(
        "{}
import json, sqlite3, sys
secret, now, requests = json.loads(sys.argv[1])
db = sqlite3.connect(':memory:')
db.execute('CREATE TABLE seen_runs (id TEXT PRIMARY KEY)')
worked = []
statuses = [receive(db, secret, r['headers'], r['body'].encode(), lambda db, body: worked.append(body), now) for r in requests]
print(json.dumps([statuses, len(worked)]))
",
        receiver_of_the_docs()
    );
    let reply = Command::new("python3").args(["-c", &program, &json!([secret, now, requests]).to_string()]).output();
    let reply = reply.await.unwrap();
    assert!(reply.status.success(), "{}", String::from_utf8_lossy(&reply.stderr));
    serde_json::from_slice(&reply.stdout).unwrap()
}

async fn secret(s: &Story) -> String {
    s.table("SELECT signing_secret FROM teams").await
}

pub(super) fn noon() -> i64 {
    NOON.parse::<chrono::DateTime<chrono::Utc>>().unwrap().timestamp()
}

/// The action may have no body, text or JSON, and a content type of its own.
#[tokio::test]
async fn requests_are_signed_with_the_run_id() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::kind().await;
    let mut ids = Vec::new();
    for body in [Value::Null, json!({"text": "größer"}), json!("as it is"), json!([1, 2])] {
        let mut action = receiver.action();
        action["headers"] = json!({"content-type": "application/x-own"});
        if !body.is_null() {
            action["body"] = body;
        }
        let wf = s.create_with(json!({ "action": action })).await;
        let id = accept(&s, wf).await;
        until_state(&s, id, "succeeded").await;
        ids.push(id.to_string());
    }
    let requests = receiver.received();
    let reply: Vec<&str> = requests.iter().map(|request| request.headers["webhook-id"].to_str().unwrap()).collect();
    assert_eq!(reply, ids);
    assert!(requests.iter().all(|request| request.headers["x-cronbox-run-id"] == request.headers["webhook-id"]));
    assert!(requests.iter().all(|request| request.headers["content-type"] == "application/x-own"));
    assert_eq!(received_by_the_docs(&secret(&s).await, &requests, noon()).await, (vec![200; 4], 4));
    s.end().await;
}

/// Each try of the run has a signature of its own, and the same id.
#[tokio::test]
async fn a_receiver_works_once_for_two_tries() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::answering(&[(500, "")]).await;
    let wf = s.create_with(json!({"action": receiver.action(), "max_attempts": 2})).await;
    let id = accept(&s, wf).await;
    s.until("SELECT count(*) FROM runs WHERE state = 'accepted' AND tries = 1", 1).await;
    s.now_is("2026-03-02T12:00:10Z").await;
    until_state(&s, id, "succeeded").await;
    let requests = receiver.received();
    assert_ne!(requests[0].headers["webhook-signature"], requests[1].headers["webhook-signature"], "signed anew");
    assert_eq!(received_by_the_docs(&secret(&s).await, &requests, noon()).await, (vec![200, 200], 1));
    s.end().await;
}

#[tokio::test]
async fn tampered_old_and_foreign_requests_are_refused() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::kind().await;
    let wf = s.create_with(json!({"action": receiver.action()})).await;
    let id = accept(&s, wf).await;
    until_state(&s, id, "succeeded").await;
    let sent = receiver.received().remove(0);
    let (mut changed, mut renamed) = (sent.clone(), sent.clone());
    changed.body = String::from_utf8(sent.body.to_vec()).unwrap().replace("manual", "schedule").into();
    renamed.headers.insert("webhook-id", "0195".parse().unwrap());
    let secret = secret(&s).await;
    assert_eq!(received_by_the_docs(&secret, &[changed, renamed], noon()).await, (vec![401, 401], 0));
    assert_eq!(received_by_the_docs(&secret, std::slice::from_ref(&sent), noon() + 301).await, (vec![401], 0));
    assert_eq!(received_by_the_docs("whsec_AAAA", &[sent], noon()).await, (vec![401], 0));
    s.end().await;
}

/// The app cannot sign the request, so it sends nothing. Another try would not help.
#[tokio::test]
async fn an_invalid_secret_fails_the_run_unsent() {
    let options = StackOptions { now: Some(NOON.parse().unwrap()), ..StackOptions::default() };
    let s = Story::with(options).await;
    let receiver = Receiver::kind().await;
    s.execute("UPDATE teams SET signing_secret = 'whsec_no base64'").await;
    let wf = s.create_with(json!({"action": receiver.action(), "max_attempts": 5})).await;
    let id = accept(&s, wf).await;
    let failed = until_state(&s, id, "failed").await;
    assert_eq!(failed["error"], "the team's signing secret must be whsec_ followed by base64");
    assert!(receiver.received().is_empty());
    s.end().await;
}
