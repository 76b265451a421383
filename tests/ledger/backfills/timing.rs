//! Backfills of spans in which no time was due, because the workflow was paused or had no schedule yet.

use serde_json::{Value, json};
use tests::Story;

use crate::backfills::requests::{ask, finished_backfill, made, morning};
use crate::steps::fire;
use crate::verify::due_times::{differences, verify};

/// Asserts that the proof finds no difference in the morning, after a turn of the watchdog.
async fn assert_clean(s: &Story) {
    s.job("watchdog").await;
    let found = verify(s, "from=2026-03-02T08:30:00Z&to=2026-03-02T12:00:00Z").await.expect(200);
    assert_eq!(differences(&found), Vec::<String>::new(), "{}", found.text);
}

#[tokio::test]
async fn the_present_cron_backfills_a_paused_span() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let wf = s.create("0 * * * *", "UTC").await;
    s.publish().await;
    s.pause(wf).await;
    s.now_is("2026-03-02T10:00:05Z").await;
    assert_eq!(fire(&s, wf, "2026-03-02T10:00:00Z").await, "paused");
    s.now_is("2026-03-02T12:10:00Z").await;
    s.resume(wf).await;
    ask(&s, wf, &morning(json!({}))).await.refused(409, "nothing_selected", None);
    let requested = ask(&s, wf, &morning(json!({"timing": "now"}))).await.expect(202).json;
    assert_eq!((&requested["total"], &requested["timing"]), (&json!(3), &json!("now")));
    assert_eq!(finished_backfill(&s, &requested).await["succeeded"], 3);
    assert_eq!(made(&s, wf).await, ["09:00", "10:00", "11:00"]);
    assert_eq!(
        s.occurrences(wf).await,
        "2026-03-02T09:00Z backfilled\n2026-03-02T10:00Z backfilled\n2026-03-02T11:00Z backfilled"
    );
    ask(&s, wf, &morning(json!({"timing": "now"}))).await.refused(409, "nothing_selected", None);
    assert_clean(&s).await;
    s.end().await;
}

/// A pause skipped a fire, which has a row. The backfill runs that time once.
#[tokio::test]
async fn a_skipped_time_is_backfilled_once() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let wf = s.create("0 * * * *", "UTC").await;
    s.publish().await;
    s.now_is("2026-03-02T09:00:05Z").await;
    s.pause(wf).await;
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "paused", "due, and paused before it was delivered");
    s.now_is("2026-03-02T12:10:00Z").await;
    s.resume(wf).await;
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z skipped_paused");
    let skipped = s.editor().get(&format!("/api/v1/schedules/{wf}/occurrences")).await.expect(200).json;
    let skipped = &skipped["items"][0];
    assert_eq!((&skipped["reason"], &skipped["reason_code"]), (&json!("test"), &json!("paused")), "a person's text");
    let then = ask(&s, wf, &morning(json!({}))).await;
    then.refused(409, "nothing_selected", None);
    let requested =
        ask(&s, wf, &morning(json!({"timing": "now", "end": "2026-03-02T09:30:00Z"}))).await.expect(202).json;
    assert_eq!(finished_backfill(&s, &requested).await["succeeded"], 1);
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z backfilled");
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "duplicate");
    let all = ask(&s, wf, &morning(json!({"timing": "now"}))).await.expect(202).json;
    assert_eq!(all["total"], 2, "09:00 has run");
    finished_backfill(&s, &all).await;
    assert_clean(&s).await;
    s.end().await;
}

#[tokio::test]
async fn a_span_before_the_schedule_is_backfilled() {
    let s = Story::at("2026-03-02T12:10:00Z").await;
    let wf = s.create("0 * * * *", "UTC").await;
    let dry = morning(json!({"dry_run": true}));
    assert_eq!(ask(&s, wf, &dry).await.expect(200).json, json!({"total": 0, "times": []}));
    ask(&s, wf, &morning(json!({}))).await.refused(409, "nothing_selected", None);
    let dry = morning(json!({"dry_run": true, "timing": "now", "order": "newest_first"}));
    let times = ["2026-03-02T11:00:00Z", "2026-03-02T10:00:00Z", "2026-03-02T09:00:00Z"];
    assert_eq!(ask(&s, wf, &dry).await.expect(200).json["times"], json!(times));
    let body = morning(json!({"timing": "now", "order": "newest_first"}));
    let requested = ask(&s, wf, &body).await.expect(202).json;
    assert_eq!(finished_backfill(&s, &requested).await["succeeded"], 3);
    assert_eq!(made(&s, wf).await, ["11:00", "10:00", "09:00"]);
    assert_clean(&s).await;
    s.end().await;
}

/// A backfill uses the cron of its request, also if an edit changes the cron in the meantime.
#[tokio::test]
async fn an_edit_changes_no_backfill_under_way() {
    let s = Story::at("2026-03-02T12:10:00Z").await;
    let wf = s.create("0 * * * *", "UTC").await;
    let requested = ask(&s, wf, &morning(json!({"timing": "now"}))).await.expect(202).json;
    s.edit(wf, json!({"cron_schedule": "30 * * * *"})).await;
    assert_eq!(finished_backfill(&s, &requested).await["succeeded"], 3);
    assert_eq!(made(&s, wf).await, ["09:00", "10:00", "11:00"]);
    assert_clean(&s).await;
    s.end().await;
}

#[tokio::test]
async fn a_workflow_without_a_cron_selects_nothing() {
    let s = Story::at("2026-03-02T12:10:00Z").await;
    let wf = s.create_with(json!({"cron_schedule": Value::Null})).await;
    ask(&s, wf, &morning(json!({}))).await.refused(409, "nothing_selected", None);
    ask(&s, wf, &morning(json!({"timing": "now"}))).await.refused(409, "nothing_selected", None);
    ask(&s, wf, &morning(json!({"timing": "soon"}))).await.refused(400, "invalid_field", Some("timing"));
    s.end().await;
}
