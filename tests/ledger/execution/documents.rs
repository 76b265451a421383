//! Numbers that JSON permits and a program may not be able to read: they fail no run, or only their own.

use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::Story;
use uuid::Uuid;

use crate::execution::crashes::{every_minute, invoke, next_minute};
use crate::process::{App, idle};
use crate::receiver::{Receiver, accept, until_state};

/// An app whose jobs write nothing, and whose leases do not end if the machine is suspended.
async fn app(s: &Story) -> App {
    App::with(&s.dsn(), &[("CRONBOX_JOBS_ENABLED", "false"), ("CRONBOX_LOST_AFTER_SECS", "3600")]).await
}

/// Requests a run; returns its id.
async fn fire(s: &Story, workflow: WorkflowId, body: Value) -> Uuid {
    let fired = s.editor().post(&format!("/api/v1/schedules/{workflow}:fire"), &body).await.expect(202).json;
    fired["run_id"].as_str().unwrap().parse().unwrap()
}

/// The largest number, which programs use to say "no limit". Postgres returns it as 309 digits.
#[tokio::test]
async fn the_largest_number_arrives() {
    let s = idle().await;
    let (app, receiver) = (app(&s).await, Receiver::kind().await);
    let wf = s.create_with(json!({"action": receiver.action(), "starting_inputs": {"least": f64::MIN}})).await;
    for body in [json!({"inputs": {"most": f64::MAX}}), json!({})] {
        let run = fire(&s, wf, body).await;
        until_state(&s, run, "succeeded").await;
    }
    let sent: Vec<Value> = receiver.calls().iter().map(|call| call["inputs"].clone()).collect();
    assert_eq!(sent, [json!({"most": f64::MAX}), json!({"least": f64::MIN})]);
    let read = s.editor().get(&format!("/api/v1/workflows/{wf}")).await.expect(200).json;
    assert_eq!(read["starting_inputs"], json!({"least": f64::MIN}));
    app.stop().await;
    s.end_early().await;
}

/// By whichever way such a document came into the database.
#[tokio::test]
async fn an_unreadable_document_fails_only_its_run() {
    let s = idle().await;
    let receiver = Receiver::kind().await;
    let bad = s.create_with(json!({"action": receiver.action()})).await;
    let good = s.create_with(json!({"action": receiver.action()})).await;
    let (unreadable, beside) = (accept(&s, bad).await, accept(&s, good).await);
    s.execute("UPDATE workflows SET starting_inputs = '{\"a\": 1e400}' WHERE id = (SELECT min(id) FROM workflows)")
        .await;
    let app = app(&s).await;
    let failed = until_state(&s, unreadable, "failed").await;
    assert!(failed["error"].as_str().unwrap().starts_with("the inputs cannot be read: "), "{failed}");
    until_state(&s, beside, "succeeded").await;
    app.stop().await;
    s.end_early().await;
}

/// A fire that starts its run at once reads the documents of all runs of its batch.
#[tokio::test]
async fn an_unreadable_document_fails_only_its_fire() {
    let s = idle().await;
    let receiver = Receiver::kind().await;
    let (bad, good) = (every_minute(&s, &receiver).await, every_minute(&s, &receiver).await);
    s.execute(
        "UPDATE workflows SET action = jsonb_set(action, '{body}', '1e400') WHERE id = (SELECT min(id) FROM workflows)",
    )
    .await;
    let app = app(&s).await;
    let invoked = async |wf| {
        let answer = tests::send_request(invoke(&app, &s, wf, next_minute(&s))).await.expect(202);
        answer.json["run_id"].as_str().unwrap().parse().unwrap()
    };
    let (failing, beside) = tokio::join!(invoked(bad), invoked(good));
    let failed = until_state(&s, failing, "failed").await;
    assert!(failed["error"].as_str().unwrap().starts_with("the action cannot be read: "), "{failed}");
    until_state(&s, beside, "succeeded").await;
    app.stop().await;
    s.end_early().await;
}
