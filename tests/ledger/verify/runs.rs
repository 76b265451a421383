//! The proof compares each decision with its runs, and each automatic run with its decision.

use local::stack::StackOptions;
use serde_json::{Value, json};
use tests::Story;

use crate::steps::{fire_on_time, hourly, story_without_executor};
use crate::verify::due_times::{SPAN, differences, fired, settle, verify};

/// Injects a fault into the database, and returns the differences that the proof of the three fires finds.
async fn proven_after(s: &Story, fault: &'static str) -> Vec<String> {
    s.execute(fault).await;
    differences(&verify(s, SPAN).await.expect(200))
}

#[tokio::test]
async fn two_automatic_runs_are_found() {
    let (s, _) = fired().await;
    let second = "DROP INDEX idx_runs_automatic;
        INSERT INTO runs (id, workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, created_on, finished_on)
        SELECT uuid_v7_floor(created_on), workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, created_on, finished_on
          FROM runs WHERE scheduled_time = '2026-03-02T09:30:00Z'";
    assert_eq!(proven_after(&s, second).await, ["09:30 two_runs"]);
    s.end().await;
}

#[tokio::test]
async fn a_decision_without_its_run_is_found() {
    let (s, _) = fired().await;
    let gone = "DELETE FROM runs WHERE scheduled_time = '2026-03-02T09:30:00Z'";
    assert_eq!(proven_after(&s, gone).await, ["09:30 no_run"]);
    let another = "ALTER TABLE occurrences DISABLE TRIGGER occurrences_run_once;
                   UPDATE occurrences SET run_id = gen_random_uuid() WHERE scheduled_time = '2026-03-02T10:00:00Z'";
    assert_eq!(proven_after(&s, another).await, ["09:30 no_run", "10:00 no_run"]);
    let none = "ALTER TABLE occurrences_before DROP CONSTRAINT occurrences_run;
                ALTER TABLE occurrences_later DROP CONSTRAINT occurrences_run;
                UPDATE occurrences SET run_id = NULL WHERE scheduled_time = '2026-03-02T09:00:00Z'";
    assert_eq!(proven_after(&s, none).await, ["09:00 no_run", "09:30 no_run", "10:00 no_run"]);
    s.end().await;
}

#[tokio::test]
async fn a_run_without_its_decision_is_found() {
    let (s, _) = fired().await;
    let gone = "DELETE FROM occurrences WHERE scheduled_time = '2026-03-02T09:30:00Z'";
    assert_eq!(proven_after(&s, gone).await, ["09:30 missing", "09:30 run_without_decision"]);
    let run: String = s.table("SELECT id::text FROM runs WHERE scheduled_time = '2026-03-02T09:30:00Z'").await;
    let found = verify(&s, SPAN).await.expect(200).json;
    assert_eq!((&found["differences"][0]["run_id"], &found["differences"][1]["run_id"]), (&Value::Null, &json!(run)));
    s.end().await;
}

#[tokio::test]
async fn runs_that_contradict_their_decision_are_found() {
    let (s, _) = fired().await;
    for decided in [
        "UPDATE occurrences SET decision = 'missed', run_id = NULL WHERE scheduled_time = '2026-03-02T09:30:00Z'",
        "UPDATE occurrences SET decision = 'skipped_overlap' WHERE scheduled_time = '2026-03-02T09:30:00Z'",
        "UPDATE occurrences SET decision = 'skipped_paused' WHERE scheduled_time = '2026-03-02T09:30:00Z'",
        "UPDATE occurrences SET decision = 'abandoned', run_id = (SELECT r.id FROM runs r WHERE r.occurrence_id = occurrences.id)
          WHERE scheduled_time = '2026-03-02T09:30:00Z'",
        "UPDATE occurrences SET decision = 'caught_up' WHERE scheduled_time = '2026-03-02T09:30:00Z'",
    ] {
        assert_eq!(proven_after(&s, decided).await, ["09:30 contradicted"], "{decided}");
    }
    s.execute("UPDATE occurrences SET decision = 'fired'").await;
    let abandoned = "ALTER TABLE runs_ended DISABLE TRIGGER USER;
                     UPDATE runs SET state = 'abandoned' WHERE scheduled_time = '2026-03-02T10:00:00Z'";
    assert_eq!(proven_after(&s, abandoned).await, ["10:00 contradicted"]);
    s.end().await;
}

#[tokio::test]
async fn cancelled_and_retried_runs_keep_their_decision() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    let run = s.runs_of(wf).await[0]["id"].as_str().unwrap().to_owned();
    s.editor().post_empty(&format!("/api/v1/runs/{run}:cancel")).await.expect(200);
    s.editor().post_empty(&format!("/api/v1/runs/{run}:retry")).await.expect(202);
    s.now_is("2026-03-02T10:10:00Z").await;
    s.job("watchdog").await;
    let clean = verify(&s, "from=2026-03-02T08:30:00Z&to=2026-03-02T10:01:00Z").await.expect(200);
    assert_eq!(differences(&clean), Vec::<String>::new());
    s.publish().await;
    s.end_early().await;
}

/// A newer fire replaced a run that had not started.
#[tokio::test]
async fn a_replaced_waiting_run_is_permitted() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    s.execute(
        "UPDATE runs SET state = 'cancelled', finished_on = created_on;
         UPDATE occurrences SET decision = 'skipped_overlap', reason = 'predecessor_not_started'",
    )
    .await;
    s.now_is("2026-03-02T09:40:00Z").await;
    s.job("watchdog").await;
    let span = "from=2026-03-02T08:30:00Z&to=2026-03-02T09:30:00Z";
    assert_eq!(differences(&verify(&s, span).await.expect(200)), Vec::<String>::new());
    s.execute("ALTER TABLE runs_ended DISABLE TRIGGER USER; UPDATE runs SET state = 'succeeded', attempt = 1").await;
    assert_eq!(differences(&verify(&s, span).await.expect(200)), ["09:00 contradicted"]);
    s.publish().await;
    s.end_early().await;
}

#[tokio::test]
async fn pruned_runs_are_not_missing() {
    let app = |config: &mut app::Config| config.retention_days = 1;
    let now = Some("2026-03-02T08:59:00Z".parse().unwrap());
    let s = Story::with(StackOptions { now, app, ..StackOptions::default() }).await;
    s.create("*/30 * * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T10:10:00Z").await;
    settle(&s).await;
    // This app keeps runs for one day, and occurrences for 15 days.
    s.now_is("2026-03-04T10:10:00Z").await;
    s.job("prune").await;
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 0);
    assert_eq!(differences(&verify(&s, SPAN).await.expect(200)), Vec::<String>::new());
    assert_eq!(
        proven_after(&s, "DELETE FROM prune_marks").await,
        ["09:00 no_run", "09:30 no_run", "10:00 no_run"],
        "without a prune they would be lost"
    );
    s.end().await;
}

/// Rows that were removed under a shorter retention are still missing after the retention is raised.
#[tokio::test]
async fn a_raised_retention_proves_no_pruned_span() {
    let app = |config: &mut app::Config| config.retention_days = 15;
    let now = Some("2026-03-02T08:59:00Z".parse().unwrap());
    let mut s = Story::with(StackOptions { now, app, ..StackOptions::default() }).await;
    let wf = s.create_with(json!({"cron_schedule": "0 * * * *", "catch_up_window_secs": 3600})).await;
    s.publish().await;
    s.clock_to("2026-03-02T11:10:00Z").await;
    s.now_is("2026-03-20T12:00:00Z").await;
    s.job("watchdog").await;
    s.job("prune").await;
    let raised = tests::Api::new(&s.another_url().await, &s.keys.admin);
    let from = |from: &str| format!("/api/v1/verify?from={from}&to=2026-03-20T11:50:00Z");
    let old = raised.get(&from("2026-03-02T09:00:00Z")).await;
    old.refused(400, "span_too_old", Some("from"));
    assert!(old.json["detail"].as_str().unwrap().contains("2026-03-05T12:00:00Z"), "{}", old.text);
    let kept = raised.get(&from("2026-03-05T12:30:00Z")).await.expect(200);
    assert_eq!(differences(&kept), Vec::<String>::new());
    s.archive(wf).await;
    s.end().await;
}
