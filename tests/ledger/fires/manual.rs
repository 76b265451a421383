//! Manual runs, cancellations and retries.

use local::stack::StackOptions;
use serde_json::{Value, json};
use tests::{Answer, Story};

/// A story without an executor, so that accepted runs stay accepted.
async fn unexecuted() -> Story {
    Story::with(StackOptions { app: |config| config.executor_slots = 0, ..StackOptions::default() }).await
}

async fn run(s: &Story, requested: &Answer) -> Value {
    let id = requested.json["run_id"].as_str().unwrap();
    assert_eq!(requested.headers["location"], format!("/api/v1/runs/{id}"));
    s.editor().get(&format!("/api/v1/runs/{id}")).await.expect(200).json
}

#[tokio::test]
async fn manual_fires_decide_no_due_time() {
    let s = Story::at("2026-03-02T09:00:00Z").await;
    let id = s.create_with(json!({"cron_schedule": "0 9 * * *", "starting_inputs": {"a": 1}})).await;
    let fire = format!("/api/v1/schedules/{id}:fire");
    let requested = s.editor().post(&fire, &json!({"inputs": {"b": 2}})).await.expect(202);
    s.runs_end().await;
    let fired = run(&s, &requested).await;
    assert_eq!((&fired["trigger"], &fired["state"]), (&json!("manual"), &json!("succeeded")));
    assert_eq!(fired["scheduled_time"], Value::Null);
    assert_eq!(s.occurrences(id).await, "");
    assert_eq!(s.table("SELECT inputs::text FROM runs").await, r#"{"b": 2}"#);
    // The schedule's time in the same minute still gets its own run.
    assert_eq!(s.invoke(id, "2026-03-02T09:00:00Z").await.status, 202);
    s.runs_end().await;
    s.pause(id).await;
    s.editor().post_empty(&fire).await.expect(202);
    s.runs_end().await;
    s.archive(id).await;
    s.editor().post_empty(&fire).await.refused(409, "archived", None);
    s.editor().post(&fire, &json!({"inputs": [1]})).await.refused(400, "invalid_field", Some("inputs"));
    let audit = s.table("SELECT verb FROM audit_log WHERE subject LIKE 'run:%' ORDER BY id").await;
    assert_eq!(audit, "fire\nfire");
    s.end().await;
}

#[tokio::test]
async fn workflows_without_a_schedule_can_be_fired() {
    let s = Story::today().await;
    let id = s.create_with(json!({})).await;
    s.editor().post_empty(&format!("/api/v1/schedules/{id}:fire")).await.expect(202);
    s.runs_end().await;
    assert_eq!(s.runs(id).await, "untimed manual succeeded");
    s.end().await;
}

#[tokio::test]
async fn manual_fires_follow_the_overlap_policy() {
    let s = unexecuted().await;
    let id = s.create("0 9 * * *", "UTC").await;
    let fire = format!("/api/v1/schedules/{id}:fire");
    let first = s.editor().post_empty(&fire).await.expect(202);
    s.editor().post_empty(&fire).await.refused(409, "overlap", None);
    let verb = |run: &Answer, verb: &str| format!("/api/v1/runs/{}:{verb}", run.json["run_id"].as_str().unwrap());
    s.editor().post_empty(&verb(&first, "retry")).await.refused(409, "run_live", None);
    assert_eq!(s.editor().post_empty(&verb(&first, "cancel")).await.expect(200).json["state"], "cancelled");
    assert_eq!(s.editor().post_empty(&verb(&first, "cancel")).await.expect(200).json["state"], "cancelled", "again");
    s.editor().post_empty(&fire).await.expect(202);
    s.end_early().await;
}

#[tokio::test]
async fn one_concurrent_manual_fire_gets_the_slot() {
    let s = unexecuted().await;
    let id = s.create("0 9 * * *", "UTC").await;
    let fire = format!("/api/v1/schedules/{id}:fire");
    let editor = s.editor();
    let requested = futures::future::join_all((0..10).map(|_| editor.post_empty(&fire))).await;
    let mut statuses: Vec<u16> = requested.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![202], vec![409; 9]].concat());
    s.end_early().await;
}

#[tokio::test]
async fn retries_add_runs_to_the_same_occurrence() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let id = s.create("0 9 * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T09:10:00Z").await;
    let first = s.runs_of(id).await[0]["id"].as_str().unwrap().to_owned();
    s.editor().post_empty(&format!("/api/v1/runs/{first}:cancel")).await.refused(409, "run_ended", None);
    let requested = s.editor().post_empty(&format!("/api/v1/runs/{first}:retry")).await.expect(202);
    s.runs_end().await;
    let again = run(&s, &requested).await;
    assert_eq!((&again["trigger"], &again["state"]), (&json!("retry"), &json!("succeeded")));
    assert_eq!(again["scheduled_time"], "2026-03-02T09:00:00Z");
    assert_eq!(s.count("SELECT count(DISTINCT occurrence_id) FROM runs").await, 1, "it names the occurrence");
    assert_eq!(s.table("SELECT run_id::text FROM occurrences").await, first, "which keeps its first run");
    let missing = uuid::Uuid::nil();
    s.editor().post_empty(&format!("/api/v1/runs/{missing}:retry")).await.refused(404, "not_found", None);
    s.end().await;
}

#[tokio::test]
async fn a_manual_run_has_one_live_retry() {
    let s = unexecuted().await;
    let id = s.create("0 9 * * *", "UTC").await;
    let first = s.editor().post_empty(&format!("/api/v1/schedules/{id}:fire")).await.expect(202);
    let verb = |run: &Answer, verb: &str| format!("/api/v1/runs/{}:{verb}", run.json["run_id"].as_str().unwrap());
    s.editor().post_empty(&verb(&first, "cancel")).await.expect(200);
    let again = s.editor().post_empty(&verb(&first, "retry")).await.expect(202);
    s.editor().post_empty(&verb(&first, "retry")).await.refused(409, "run_live", None);
    s.editor().post_empty(&verb(&again, "cancel")).await.expect(200);
    // A retry of a retry repeats the same run.
    s.editor().post_empty(&verb(&again, "retry")).await.expect(202);
    s.editor().post_empty(&verb(&first, "retry")).await.refused(409, "run_live", None);
    s.editor().post_empty(&verb(&again, "retry")).await.refused(409, "run_live", None);
    // A manual run of another workflow is independent.
    let other = s.create("0 9 * * *", "UTC").await;
    let other = s.editor().post_empty(&format!("/api/v1/schedules/{other}:fire")).await.expect(202);
    s.editor().post_empty(&verb(&other, "cancel")).await.expect(200);
    s.editor().post_empty(&verb(&other, "retry")).await.expect(202);
    s.end_early().await;
}
