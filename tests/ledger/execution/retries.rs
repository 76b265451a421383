//! Tries: which answers cause another try, after which pause, and how many tries a run has.

use serde_json::{Value, json};
use tests::{Story, refused_action};

use crate::execution::attempts::cancel;
use crate::receiver::{NOON, Receiver, accept, until_state};
use crate::steps::timeline;

#[tokio::test]
async fn failed_answers_are_retried_after_doubling_pauses() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::answering(&[(500, ""), (503, "")]).await;
    let wf = s.create_with(json!({"action": receiver.action(), "max_attempts": 3})).await;
    let id = accept(&s, wf).await;
    receiver.until(1).await;
    let waits = until_state(&s, id, "accepted").await;
    assert_eq!(waits["error"], "the receiver answered 500 Internal Server Error", "a reader sees why it waits");
    let pause = "SELECT count(*) FROM runs WHERE tries = 1 AND locked_by IS NULL
                  AND run_after - '2026-03-02T12:00:00Z' BETWEEN '5 s' AND '10 s'";
    s.until(pause, 1).await;
    s.now_is("2026-03-02T12:00:04Z").await;
    s.runs_end().await;
    assert_eq!(receiver.received().len(), 1, "the pause is not over");
    s.now_is("2026-03-02T12:00:10Z").await;
    receiver.until(2).await;
    let pause = "SELECT count(*) FROM runs WHERE tries = 2 AND locked_by IS NULL
                  AND run_after - '2026-03-02T12:00:10Z' BETWEEN '10 s' AND '20 s'";
    s.until(pause, 1).await;
    s.now_is("2026-03-02T12:00:30Z").await;
    let done = until_state(&s, id, "succeeded").await;
    assert_eq!((&done["attempt"], &done["error"]), (&json!(3), &Value::Null));
    let expected = [
        "1 failed 12:00:00 the receiver answered 500 Internal Server Error",
        "2 failed 12:00:10 the receiver answered 503 Service Unavailable",
        "3 succeeded 12:00:30 -",
    ];
    assert_eq!(timeline(&s, id).await, expected);
    let attempts: Vec<_> =
        receiver.calls().iter().map(|call| (call["run_id"].clone(), call["attempt"].clone())).collect();
    assert_eq!(attempts, [1, 2, 3].map(|attempt| (json!(id), json!(attempt))));
    assert!(receiver.calls().iter().all(|call| call["context"]["is_recovery"] == false), "its instance never died");
    s.end().await;
}

#[tokio::test]
async fn a_run_fails_with_its_last_try() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::answering(&[(500, ""), (500, "")]).await;
    let wf = s.create_with(json!({"action": receiver.action(), "max_attempts": 2})).await;
    let id = accept(&s, wf).await;
    s.until("SELECT count(*) FROM runs WHERE tries = 1 AND locked_by IS NULL", 1).await;
    s.now_is("2026-03-02T12:01:00Z").await;
    until_state(&s, id, "failed").await;
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE tries = 2 AND attempt = 2").await, 1);
    let why = "the receiver answered 500 Internal Server Error";
    assert_eq!(timeline(&s, id).await, [format!("1 failed 12:00:00 {why}"), format!("2 failed 12:01:00 {why}")]);
    assert_eq!(receiver.received().len(), 2);
    s.end().await;
}

/// A busy receiver is called again after the time in its `Retry-After`.
#[tokio::test]
async fn refusals_fail_and_busy_receivers_are_retried() {
    let s = Story::at(NOON).await;
    for status in [400, 401, 404, 410, 422] {
        let receiver = Receiver::answering(&[(status, "")]).await;
        let wf = s.create_with(json!({"action": receiver.action(), "max_attempts": 3})).await;
        let id = accept(&s, wf).await;
        assert_eq!(until_state(&s, id, "failed").await["attempt"], 1, "{status}");
    }
    for (status, at_least) in [(408, 5.0_f64), (429, 120.0), (503, 120.0)] {
        let receiver = Receiver::answering(&[(status, if at_least > 100.0 { "120" } else { "" })]).await;
        let wf = s.create_with(json!({"action": receiver.action(), "max_attempts": 3})).await;
        let id = accept(&s, wf).await;
        receiver.until(1).await;
        until_state(&s, id, "accepted").await;
        let pause = "SELECT EXTRACT(EPOCH FROM run_after - created_on)::float8 FROM runs WHERE id = $1 AND tries = 1";
        let pause: f64 = sqlx::query_scalar(pause).bind(id).fetch_one(&s.pool).await.unwrap();
        assert!((at_least..=at_least.max(10.0)).contains(&pause), "{status}: {pause} s");
        cancel(&s, id).await;
    }
    s.end().await;
}

#[tokio::test]
async fn an_unreachable_receiver_is_tried_again() {
    let s = Story::at(NOON).await;
    let wf = s.create_with(json!({"action": refused_action(), "max_attempts": 2})).await;
    let id = accept(&s, wf).await;
    s.until("SELECT count(*) FROM runs WHERE state = 'accepted' AND tries = 1", 1).await;
    s.now_is("2026-03-02T12:01:00Z").await;
    let failed = until_state(&s, id, "failed").await;
    assert!(failed["error"].as_str().unwrap().starts_with("cannot connect"), "{failed}");
    s.end().await;
}
