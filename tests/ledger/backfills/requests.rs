//! Backfills: past times that run on request, beside the live schedule.

use local::stack::StackOptions;
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::{Answer, Story};

use crate::steps::fire_on_time;

pub(crate) async fn ask(s: &Story, id: WorkflowId, body: &Value) -> Answer {
    s.editor().post(&format!("/api/v1/schedules/{id}:backfill"), body).await
}

pub(crate) fn morning(fields: Value) -> Value {
    let mut body = json!({"start": "2026-03-02T09:00:00Z", "end": "2026-03-02T12:00:00Z"});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

pub(crate) async fn read(s: &Story, backfill: &Value) -> Value {
    let path = format!("/api/v1/backfills/{}", backfill["id"].as_str().unwrap());
    s.editor().get(&path).await.expect(200).json
}

pub(crate) async fn verb(s: &Story, backfill: &Value, verb: &str) -> Answer {
    s.editor().post_empty(&format!("/api/v1/backfills/{}:{verb}", backfill["id"].as_str().unwrap())).await
}

/// Runs the jobs until the backfill has ended.
pub(crate) async fn finished_backfill(s: &Story, backfill: &Value) -> Value {
    for _ in 0..100 {
        s.job("backfills").await;
        s.runs_end().await;
        s.job("queue").await;
        s.runs_end().await;
        let current = read(s, backfill).await;
        if current["state"] != "running" {
            return current;
        }
    }
    panic!("it does not end: {}", read(s, backfill).await);
}

/// The scheduled times of a workflow's runs, in the order of their creation.
pub(crate) async fn made(s: &Story, id: WorkflowId) -> Vec<String> {
    let runs = s.runs_of(id).await;
    runs.iter().rev().map(|run| run["scheduled_time"].as_str().unwrap()[11..16].to_owned()).collect()
}

/// An hourly workflow whose fires of the morning were not delivered.
pub(crate) async fn outage(options: StackOptions) -> (Story, WorkflowId) {
    let s = Story::with(StackOptions { now: Some("2026-03-02T08:30:00Z".parse().unwrap()), ..options }).await;
    let id = s.create("0 * * * *", "UTC").await;
    s.now_is("2026-03-02T12:10:00Z").await;
    (s, id)
}

pub(crate) fn unexecuted() -> StackOptions {
    StackOptions { app: |config| config.executor_slots = 0, ..StackOptions::default() }
}

/// The cursor of the live schedule does not move.
#[tokio::test]
async fn a_backfill_runs_missed_times_oldest_first() {
    let (s, id) = outage(StackOptions::default()).await;
    let cursor = "SELECT cursor::text || watch_at::text FROM ledger";
    let before = s.table(cursor).await;
    let requested = ask(&s, id, &morning(json!({}))).await.expect(202);
    assert_eq!(
        (&requested.json["total"], &requested.json["started"], &requested.json["state"]),
        (&json!(3), &json!(0), &json!("running"))
    );
    assert_eq!(requested.headers["location"], format!("/api/v1/backfills/{}", requested.json["id"].as_str().unwrap()));
    let done = finished_backfill(&s, &requested.json).await;
    assert_eq!((&done["state"], &done["started"], &done["succeeded"]), (&json!("finished"), &json!(3), &json!(3)));
    assert_eq!(made(&s, id).await, ["09:00", "10:00", "11:00"]);
    assert_eq!(
        s.occurrences(id).await,
        "2026-03-02T09:00Z backfilled\n2026-03-02T10:00Z backfilled\n2026-03-02T11:00Z backfilled"
    );
    assert_eq!(s.table(cursor).await, before);
    // No missed time is left.
    ask(&s, id, &morning(json!({}))).await.refused(409, "nothing_selected", None);
    assert_eq!(ask(&s, id, &morning(json!({"dry_run": true}))).await.expect(200).json["total"], 0);
    s.end().await;
}

#[tokio::test]
async fn a_backfill_limits_its_concurrent_runs() {
    let (s, id) = outage(unexecuted()).await;
    let requested = ask(&s, id, &morning(json!({"order": "newest_first", "max_concurrent": 2}))).await.expect(202).json;
    for _ in 0..3 {
        s.job("backfills").await;
    }
    let current = read(&s, &requested).await;
    assert_eq!((&current["started"], &current["live"]), (&json!(2), &json!(2)));
    assert_eq!(made(&s, id).await, ["11:00", "10:00"]);
    verb(&s, &requested, "cancel").await.expect(200);
    s.end_early().await;
}

/// A run of the backfill has the slot, and a fire waits for it. Without a turn of the job `queue`.
#[tokio::test]
async fn a_cancelled_backfill_gives_its_slot_away() {
    let (s, id) = outage(unexecuted()).await;
    let requested = ask(&s, id, &morning(json!({}))).await.expect(202).json;
    s.job("backfills").await;
    assert_eq!(fire_on_time(&s, id, "2026-03-02T13:00:00Z").await, "accepted");
    assert!(s.runs(id).await.ends_with("2026-03-02T13:00Z schedule queued"), "{}", s.runs(id).await);
    verb(&s, &requested, "cancel").await.expect(200);
    assert!(s.runs(id).await.ends_with("2026-03-02T13:00Z schedule accepted"), "{}", s.runs(id).await);
    s.end_early().await;
}

#[tokio::test]
async fn concurrent_passes_start_each_run_once() {
    let (s, id) = outage(unexecuted()).await;
    ask(&s, id, &morning(json!({"max_concurrent": 10}))).await.expect(202);
    tokio::join!(s.job("backfills"), s.job("backfills"), s.job("backfills"), s.job("backfills"));
    assert_eq!(made(&s, id).await, ["09:00", "10:00", "11:00"]);
    s.end_early().await;
}

/// `failed` selects the times whose run failed, `all` selects all times. Existing decisions are kept.
#[tokio::test]
async fn backfills_can_repeat_failed_or_all_times() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let unreachable = json!({"type": "http", "method": "GET", "url": "http://127.0.0.1:8009/"});
    let id = s.create_with(json!({"cron_schedule": "0 * * * *", "action": unreachable})).await;
    s.publish().await;
    s.clock_to("2026-03-02T09:10:00Z").await;
    s.edit(id, json!({"action": {"type": "log", "url": null, "method": null, "message": "hi"}})).await;
    s.clock_to("2026-03-02T12:10:00Z").await;
    let requested = ask(&s, id, &morning(json!({"only": "failed"}))).await.expect(202).json;
    assert_eq!(requested["total"], 1);
    finished_backfill(&s, &requested).await;
    assert_eq!(made(&s, id).await, ["09:00", "10:00", "11:00", "12:00", "09:00"]);
    assert_eq!(
        s.count("SELECT count(*) FROM occurrences WHERE decision = 'fired'").await,
        4,
        "existing decisions are kept"
    );
    let requested = ask(&s, id, &morning(json!({"only": "all"}))).await.expect(202).json;
    assert_eq!(finished_backfill(&s, &requested).await["succeeded"], 3);
    assert_eq!(ask(&s, id, &morning(json!({"only": "failed", "dry_run": true}))).await.expect(200).json["total"], 0);
    s.end().await;
}

#[tokio::test]
async fn a_dry_run_only_lists_selected_times() {
    let (s, id) = outage(StackOptions::default()).await;
    let reply = ask(&s, id, &morning(json!({"dry_run": true, "order": "newest_first"}))).await.expect(200).json;
    let times = ["2026-03-02T11:00:00Z", "2026-03-02T10:00:00Z", "2026-03-02T09:00:00Z"];
    assert_eq!(reply, json!({"total": 3, "times": times}));
    assert_eq!(s.count("SELECT count(*) FROM backfills").await + s.count("SELECT count(*) FROM runs").await, 0);
    s.end().await;
}

#[tokio::test]
async fn invalid_backfill_requests_are_refused() {
    let (s, id) = outage(StackOptions::default()).await;
    let span = |start: &str, end: &str| json!({"start": start, "end": end});
    let future = ask(&s, id, &span("2026-03-02T09:00:00Z", "2026-03-02T12:11:00Z")).await;
    future.refused(400, "in_the_future", Some("end"));
    let old = ask(&s, id, &span("2025-03-02T09:00:00Z", "2026-03-02T12:00:00Z")).await;
    old.refused(400, "span_too_old", Some("start"));
    let empty = ask(&s, id, &span("2026-03-02T09:00:00Z", "2026-03-02T09:00:00Z")).await;
    empty.refused(400, "invalid_field", Some("end"));
    ask(&s, id, &morning(json!({"max_concurrent": 11}))).await.refused(400, "invalid_field", Some("max_concurrent"));
    ask(&s, id, &json!({})).await.refused(400, "missing_field", Some("start"));
    let often = s.create("* * * * *", "UTC").await;
    s.now_is("2026-03-12T12:10:00Z").await;
    let long = ask(&s, often, &span("2026-03-02T09:00:00Z", "2026-03-12T12:00:00Z")).await;
    long.refused(400, "too_many_occurrences", Some("start"));
    let requested = ask(&s, id, &morning(json!({}))).await.expect(202).json;
    ask(&s, id, &morning(json!({}))).await.refused(409, "backfill_running", None);
    s.archive(id).await;
    ask(&s, id, &morning(json!({}))).await.refused(409, "archived", None);
    assert_eq!(
        finished_backfill(&s, &requested).await["state"],
        "cancelled",
        "an archived workflow runs nothing any more"
    );
    verb(&s, &requested, "resume").await.refused(409, "backfill_ended", None);
    s.end().await;
}

/// The fire of such a time may still arrive.
#[tokio::test]
async fn backfills_leave_out_times_within_the_grace() {
    let (s, id) = outage(StackOptions::default()).await;
    s.now_is("2026-03-02T12:01:00Z").await;
    let body = json!({"start": "2026-03-02T11:00:00Z", "end": "2026-03-02T12:01:00Z", "dry_run": true});
    assert_eq!(ask(&s, id, &body).await.expect(200).json["times"], json!(["2026-03-02T11:00:00Z"]));
    s.end().await;
}

#[tokio::test]
async fn backfills_can_be_paused_resumed_and_cancelled() {
    let (s, id) = outage(unexecuted()).await;
    let requested = ask(&s, id, &morning(json!({}))).await.expect(202).json;
    assert_eq!(verb(&s, &requested, "pause").await.expect(200).json["state"], "paused");
    s.job("backfills").await;
    assert_eq!(made(&s, id).await, Vec::<String>::new());
    assert_eq!(verb(&s, &requested, "resume").await.expect(200).json["state"], "running");
    s.job("backfills").await;
    assert_eq!(verb(&s, &requested, "cancel").await.expect(200).json["state"], "cancelled");
    assert_eq!(verb(&s, &requested, "cancel").await.expect(200).json["state"], "cancelled", "again");
    verb(&s, &requested, "pause").await.refused(409, "backfill_ended", None);
    s.job("backfills").await;
    assert_eq!(made(&s, id).await, ["09:00"]);
    let listed = s.editor().get(&format!("/api/v1/backfills?workflow_id={id}&state=cancelled")).await.expect(200).json;
    assert_eq!(listed["items"][0]["id"], requested["id"]);
    assert_eq!(s.editor().get("/api/v1/backfills?state=running").await.expect(200).json["items"], json!([]));
    s.end().await;
}
