//! Marked inputs of a run: an edit of the URL sends them to no other server.

use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::Story;
use uuid::Uuid;

use crate::receiver::{Receiver, until_state};

async fn create(s: &Story, receiver: &Receiver, more: Value) -> WorkflowId {
    let mut workflow = json!({"name": "w", "action": receiver.action()});
    workflow.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    WorkflowId(s.editor().post("/api/v1/workflows", &workflow).await.expect(201).id())
}

async fn fire(s: &Story, id: WorkflowId, pin: &Value) -> Uuid {
    let fired = s.editor().post(&format!("/api/v1/schedules/{id}:fire"), &json!({"inputs": {"pin": pin}})).await;
    fired.expect(202).json["run_id"].as_str().unwrap().parse().unwrap()
}

/// An edit that requires no secret again, because the workflow itself has none.
async fn move_to(s: &Story, id: WorkflowId, receiver: &Receiver) {
    let other = json!({"action": {"url": receiver.action()["url"]}});
    s.editor().merge_patch(&format!("/api/v1/workflows/{id}"), &other).await.expect(200);
}

#[tokio::test]
async fn retries_keep_secret_inputs_at_their_origin() {
    let s = Story::today().await;
    let (receiver, other) = (Receiver::kind().await, Receiver::kind().await);
    let id = create(&s, &receiver, json!({})).await;
    let run = fire(&s, id, &json!({"secret": "1234"})).await;
    until_state(&s, run, "succeeded").await;
    let open = fire(&s, id, &json!("5678")).await;
    until_state(&s, open, "succeeded").await;
    let received: Vec<_> = receiver.calls().iter().map(|call| call["inputs"].clone()).collect();
    assert_eq!(received, [json!({"pin": {"secret": "1234"}}), json!({"pin": "5678"})], "as the caller sent them");
    move_to(&s, id, &other).await;
    let retry = format!("/api/v1/runs/{run}:retry");
    s.editor().post_empty(&retry).await.refused(409, "inputs_other_origin", None);
    let retried = s.editor().post_empty(&format!("/api/v1/runs/{open}:retry")).await.expect(202);
    until_state(&s, retried.json["run_id"].as_str().unwrap().parse().unwrap(), "succeeded").await;
    assert_eq!(other.calls().iter().map(|call| call["inputs"].clone()).collect::<Vec<_>>(), [json!({"pin": "5678"})]);
    move_to(&s, id, &receiver).await;
    let retried = s.editor().post_empty(&retry).await.expect(202);
    until_state(&s, retried.json["run_id"].as_str().unwrap().parse().unwrap(), "succeeded").await;
    assert_eq!(receiver.calls()[2]["inputs"], json!({"pin": {"secret": "1234"}}));
    s.end().await;
}

/// The first run fills the only slot of the workflow, so the second waits during the edit.
#[tokio::test]
async fn waiting_runs_send_no_secret_elsewhere() {
    let s = Story::today().await;
    let (receiver, other) = (Receiver::slow().await, Receiver::kind().await);
    let id = create(&s, &receiver, json!({"overlap_policy": "queue"})).await;
    let running = fire(&s, id, &json!({"secret": "1"})).await;
    until_state(&s, running, "running").await;
    let waiting = fire(&s, id, &json!({"secret": "2"})).await;
    move_to(&s, id, &other).await;
    s.editor().post_empty(&format!("/api/v1/runs/{running}:cancel")).await.expect(200);
    let failed = until_state(&s, waiting, "failed").await;
    assert!(failed["error"].as_str().unwrap().contains("sent for another origin"), "{failed}");
    assert!(other.received().is_empty());
    s.end().await;
}

#[tokio::test]
async fn callers_cannot_set_the_origin() {
    let s = Story::today().await;
    let receiver = Receiver::kind().await;
    let id = create(&s, &receiver, json!({})).await;
    let forged = json!({"pin": {"secret": "1", "secret_origin": receiver.url}});
    s.editor().post(&format!("/api/v1/schedules/{id}:fire"), &json!({"inputs": forged.clone()})).await.refused(
        400,
        "invalid_field",
        Some("inputs.pin"),
    );
    s.editor().merge_patch(&format!("/api/v1/workflows/{id}"), &json!({"starting_inputs": forged})).await.refused(
        400,
        "invalid_field",
        Some("starting_inputs.pin"),
    );
    s.end().await;
}
