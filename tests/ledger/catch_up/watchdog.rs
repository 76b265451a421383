//! The watchdog and the catch-up policies: every missed time is recorded, and no time runs twice.

use app::jobs::Did;
use schedule::WorkflowId;
use serde_json::json;
use tests::Story;

use crate::steps::{fire, fire_on_time, hourly, story_without_executor};

/// Runs the watchdog at this time.
async fn watched(s: &Story, now: &str) {
    s.now_is(now).await;
    s.job("watchdog").await;
}

/// The decisions by hour, for example `09 missed, 10 caught_up`.
async fn hours(s: &Story, wf: WorkflowId) -> String {
    let hour = |line: &str| format!("{}{}", &line[11..13], &line[17..]);
    s.occurrences(wf).await.lines().map(hour).collect::<Vec<_>>().join(", ")
}

const PROGRESS: &str = "SELECT ledger_decided_through(l.cursor, l.watch_at, s.decided_through), l.watch_at
                          FROM ledger l JOIN watchdog_shards s ON s.shard = l.shard WHERE l.workflow_id = $1";

/// Up to when its times are decided, and when the watchdog checks the workflow on its own; `None` = it follows its shard.
async fn cursor(s: &Story, wf: WorkflowId) -> (String, Option<String>) {
    let row: (chrono::DateTime<chrono::Utc>, Option<chrono::DateTime<chrono::Utc>>) =
        sqlx::query_as(PROGRESS).bind(wf.0).fetch_one(&s.pool).await.unwrap();
    (row.0.format("%R").to_string(), row.1.map(|at| at.format("%R").to_string()))
}

#[tokio::test]
async fn each_catch_up_policy_decides_missed_times() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let none = hourly(&s, json!({"catch_up_policy": "none"})).await;
    let skip = hourly(&s, json!({})).await;
    let all = hourly(&s, json!({"catch_up_policy": "run_all", "catch_up_window_secs": 7200})).await;
    // No fire arrived for hours; 12:00 is not late yet.
    watched(&s, "2026-03-02T12:04:59Z").await;
    assert_eq!(hours(&s, none).await, "09 missed, 10 missed, 11 missed");
    assert_eq!(hours(&s, skip).await, "09 missed, 10 missed, 11 caught_up");
    assert_eq!(hours(&s, all).await, "09 missed, 10 missed, 11 caught_up", "10:00 is older than the window");
    assert_eq!(cursor(&s, skip).await, ("11:59".into(), None));
    watched(&s, "2026-03-02T12:05:00Z").await;
    assert_eq!(hours(&s, skip).await, "09 missed, 10 missed, 11 caught_up, 12 caught_up");
    assert_eq!(s.job("watchdog").await, Did::Nothing, "and it is decided once");
    // A fire that arrives after the decision gets that decision as its answer.
    assert_eq!(fire(&s, none, "2026-03-02T11:00:00Z").await, "too_old");
    assert_eq!(fire(&s, skip, "2026-03-02T10:00:00Z").await, "missed");
    assert_eq!(fire(&s, skip, "2026-03-02T11:00:00Z").await, "duplicate");
    assert_eq!(s.runs(skip).await, "2026-03-02T11:00Z catch_up accepted\n2026-03-02T12:00Z catch_up queued");
    s.end_early().await;
}

/// A pass catches up at most 100 times of a workflow, and the next pass continues.
#[tokio::test]
async fn run_all_catches_up_oldest_times_first() {
    let s = story_without_executor("2026-03-02T08:59:30Z").await;
    let wf = s.create_with(json!({"cron_schedule": "* * * * *", "catch_up_policy": "run_all"})).await;
    let caught_up = "SELECT count(*) FROM occurrences WHERE decision = 'caught_up'";
    watched(&s, "2026-03-02T13:14:30Z").await;
    assert_eq!(s.count(caught_up).await, 100);
    assert!(s.runs(wf).await.starts_with("2026-03-02T09:00Z catch_up accepted\n2026-03-02T09:01Z catch_up queued"));
    s.job("watchdog").await;
    assert_eq!(s.count(caught_up).await, 200);
    s.job("watchdog").await;
    assert_eq!(s.count(caught_up).await, 250, "09:00 to 13:09");
    assert_eq!(s.count("SELECT count(*) FROM occurrences").await, 250);
    let in_order =
        "SELECT count(*) FROM (SELECT scheduled_time < lag(scheduled_time) OVER (ORDER BY created_on, id) AS back
                                            FROM runs) r WHERE back";
    assert_eq!(s.count(in_order).await, 0);
    s.end_early().await;
}

#[tokio::test]
async fn the_watchdog_only_reads_decided_times() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "concurrent"})).await;
    let never_due = s.create_with(json!({"cron_schedule": "0 9 1 1 *"})).await;
    watched(&s, "2026-03-02T08:36:00Z").await;
    fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await;
    let rows = "SELECT workflow_id::text || ' ' || xmin::text FROM ledger";
    let untouched = s.table(rows).await;
    assert_eq!(cursor(&s, never_due).await, ("08:31".into(), None));
    watched(&s, "2026-03-02T09:07:00Z").await;
    assert_eq!(hours(&s, wf).await, "09 fired");
    for wf in [wf, never_due] {
        assert_eq!(cursor(&s, wf).await, ("09:02".into(), None));
    }
    assert_eq!(s.table(rows).await, untouched, "no row of a workflow is changed");
    s.end_early().await;
}

#[tokio::test]
async fn skip_misses_times_before_a_later_run() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "concurrent"})).await;
    fire_on_time(&s, wf, "2026-03-02T11:00:00Z").await;
    watched(&s, "2026-03-02T11:01:00Z").await;
    assert_eq!(hours(&s, wf).await, "09 missed, 10 missed, 11 fired");
    s.end_early().await;
}

#[tokio::test]
async fn an_edit_repeats_and_loses_no_time() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"catch_up_policy": "run_all"})).await;
    // 09:00 is due and its fire does not arrive. Then the cron changes, and later the timezone.
    s.now_is("2026-03-02T09:02:00Z").await;
    s.edit(wf, json!({"cron_schedule": "*/30 * * * *"})).await;
    s.now_is("2026-03-02T09:31:00Z").await;
    s.edit(wf, json!({"cron_schedule": "15 11 * * *", "timezone": "Europe/Paris"})).await;
    watched(&s, "2026-03-02T10:30:00Z").await;
    assert_eq!(
        s.occurrences(wf).await,
        "2026-03-02T09:00Z missed\n2026-03-02T09:30Z missed\n2026-03-02T10:15Z caught_up",
        "08:30 and 09:00 of the second version lie before it; 11:15 in Paris is 10:15"
    );
    s.end_early().await;
}

#[tokio::test]
async fn paused_and_archived_times_are_not_due() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let paused = hourly(&s, json!({"catch_up_policy": "run_all"})).await;
    let archived = hourly(&s, json!({"catch_up_policy": "run_all"})).await;
    s.now_is("2026-03-02T09:02:00Z").await;
    s.pause(paused).await;
    s.archive(archived).await;
    s.now_is("2026-03-02T11:30:00Z").await;
    s.resume(paused).await;
    watched(&s, "2026-03-02T12:30:00Z").await;
    assert_eq!(hours(&s, paused).await, "09 skipped_paused, 12 caught_up", "10:00 and 11:00 were not due");
    assert_eq!(s.count("SELECT count(*) FROM occurrences WHERE decision = 'skipped_paused'").await, 2);
    assert_eq!(cursor(&s, archived).await.1, None, "no pass checks an archived workflow again");
    s.end_early().await;
}

#[tokio::test]
async fn a_pause_ends_at_its_end() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let by_watchdog = hourly(&s, json!({"overlap_policy": "concurrent"})).await;
    let by_fire = hourly(&s, json!({"overlap_policy": "concurrent"})).await;
    let by_edit = hourly(&s, json!({"catch_up_policy": "run_all"})).await;
    for wf in [by_watchdog, by_fire, by_edit] {
        let until = json!({"reason": "stocktaking", "until": "2026-03-02T11:00:00Z"});
        s.editor().post(&format!("/api/v1/workflows/{wf}:pause"), &until).await.expect(200);
    }
    assert_eq!(fire_on_time(&s, by_fire, "2026-03-02T10:00:00Z").await, "paused");
    // EventBridge may fire a moment early by our clock, and 11:00 is due nevertheless.
    s.now_is("2026-03-02T10:59:58Z").await;
    assert_eq!(fire(&s, by_fire, "2026-03-02T11:00:00Z").await, "accepted");
    assert_eq!(fire(&s, by_fire, "2026-03-02T10:00:00Z").await, "paused");
    // An edit comes before the watchdog. It must not lose the times that became due at the end of the pause.
    s.now_is("2026-03-02T12:30:00Z").await;
    s.edit(by_edit, json!({"cron_schedule": "45 * * * *"})).await;
    s.job("watchdog").await;
    assert_eq!(hours(&s, by_watchdog).await, "11 missed, 12 caught_up");
    assert_eq!(hours(&s, by_edit).await, "11 missed, 12 missed", "due, by a version that the edit has ended");
    let resumed = s.workflow(by_watchdog).await;
    assert_eq!((&resumed["state"], &resumed["pause_reason"]), (&json!("active"), &json!(null)));
    let since = "SELECT count(*) FROM schedule_versions WHERE state = 'active' AND valid_from = '2026-03-02T11:00:00Z'";
    assert_eq!(s.count(since).await, 3, "in force since the end of the pause");
    assert_eq!(s.count("SELECT count(*) FROM audit_log WHERE actor = 'cronbox' AND verb = 'resume'").await, 3);
    s.publish().await;
    s.end_early().await;
}

#[tokio::test]
async fn eventbridge_resumes_two_minutes_early() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    let until = json!({"until": "2026-03-02T11:00:00Z"});
    s.editor().post(&format!("/api/v1/workflows/{wf}:pause"), &until).await.expect(200);
    s.publish().await;
    assert!(s.schedule(wf).ends_with("DISABLED"));
    s.now_is("2026-03-02T10:57:59Z").await;
    s.publish().await;
    assert!(s.schedule(wf).ends_with("DISABLED"));
    s.now_is("2026-03-02T10:58:00Z").await;
    s.publish().await;
    assert!(s.schedule(wf).ends_with("ENABLED"), "{}", s.schedule(wf));
    assert_eq!(s.workflow(wf).await["state"], "paused", "the app refuses what comes too early");
    s.clock_to("2026-03-02T11:00:10Z").await;
    assert_eq!(s.occurrences(wf).await, "2026-03-02T11:00Z fired");
    s.end().await;
}

#[tokio::test]
async fn an_unknown_timezone_stops_only_its_cursor() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let lost = hourly(&s, json!({})).await;
    let known = hourly(&s, json!({})).await;
    let rename = "UPDATE schedule_versions SET timezone = 'Mars/Olympus' WHERE workflow_id = $1";
    sqlx::query(rename).bind(lost.0).execute(&s.pool).await.unwrap();
    watched(&s, "2026-03-02T09:10:00Z").await;
    assert_eq!((hours(&s, lost).await, hours(&s, known).await), (String::new(), "09 caught_up".into()));
    assert!(cursor(&s, lost).await.0.as_str() <= "08:30", "its cursor does not advance");
    let metrics = s.admin().get("/metrics").await.text;
    assert!(metrics.contains("cronbox_workflows_unjudged 1"), "{metrics}");
    // The app cannot check the time, so it accepts a fire of the same revision.
    s.now_is("2026-03-02T10:00:05Z").await;
    let body = json!({"scheduled_time": "2026-03-02T10:00:00Z", "revision": 1});
    s.scheduler_key().post(&format!("/api/v1/cron/workflows/{lost}:invoke"), &body).await.expect(202);
    // The timezone is known again, so the watchdog decides the due times.
    sqlx::query("UPDATE schedule_versions SET timezone = 'UTC' WHERE workflow_id = $1")
        .bind(lost.0)
        .execute(&s.pool)
        .await
        .unwrap();
    watched(&s, "2026-03-02T10:10:00Z").await;
    assert_eq!(hours(&s, lost).await, "09 missed, 10 fired");
    s.end_early().await;
}

/// If the timezone is unknown, the app cannot check the time, so it compares the timing.
#[tokio::test]
async fn unknown_timezone_accepts_fires_of_its_timing() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    for (now, cron) in [("2026-03-02T08:31:00Z", "30 * * * *"), ("2026-03-02T08:32:00Z", "0 * * * *")] {
        s.now_is(now).await;
        s.edit(wf, json!({"cron_schedule": cron})).await;
    }
    s.execute("UPDATE schedule_versions SET timezone = 'Mars/Olympus'").await;
    s.now_is("2026-03-02T09:00:05Z").await;
    let invoke = async |revision: Option<i64>| {
        let body = json!({"scheduled_time": "2026-03-02T09:00:00Z", "revision": revision});
        s.scheduler_key().post(&format!("/api/v1/cron/workflows/{wf}:invoke"), &body).await
    };
    assert_eq!(invoke(Some(2)).await.expect(200).json["reason"], "stale_revision", "another cron");
    assert_eq!(invoke(Some(4)).await.expect(200).json["reason"], "not_due", "a revision that does not exist");
    assert_eq!(invoke(None).await.expect(200).json["reason"], "not_due", "a call without a revision");
    invoke(Some(1)).await.expect(202);
    s.end_early().await;
}
