//! How a backfill proceeds, which times it never repeats, and what it counts at its end.

use std::time::Duration;

use ledger::backfills::{BackfillCursor, advance_backfills};
use ledger::requested_fires::DefaultRate;
use local::stack::StackOptions;
use serde_json::json;
use tests::Story;

use crate::backfills::requests::{ask, finished_backfill, made, morning, outage, read, unexecuted, verb};
use crate::receiver::Receiver;
use crate::steps::session_without_limits;

/// The job starts the first runs; then each run that ends starts the next.
#[tokio::test]
async fn each_run_that_ends_starts_the_next() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let wf = s.create("* * * * *", "UTC").await;
    s.now_is("2026-03-02T12:10:00Z").await;
    let span = json!({"start": "2026-03-02T09:00:00Z", "end": "2026-03-02T10:40:00Z"});
    let requested = ask(&s, wf, &span).await.expect(202).json;
    assert_eq!(requested["total"], 100);
    s.job("backfills").await;
    s.until("SELECT count(*) FROM backfills WHERE state = 'finished'", 1).await;
    let done = read(&s, &requested).await;
    assert_eq!((&done["started"], &done["succeeded"], &done["live"]), (&json!(100), &json!(100), &json!(0)));
    s.end().await;
}

/// The time of a pass is over after each backfill, so the next pass continues behind it.
#[tokio::test]
async fn a_cut_pass_comes_to_each_backfill() {
    let s = Story::with(StackOptions { now: Some("2026-03-02T08:30:00Z".parse().unwrap()), ..unexecuted() }).await;
    let workflows = [s.create("0 * * * *", "UTC").await, s.create("0 * * * *", "UTC").await];
    s.now_is("2026-03-02T12:10:00Z").await;
    for wf in workflows {
        ask(&s, wf, &morning(json!({}))).await.expect(202);
    }
    let cursor = BackfillCursor::default();
    for processed in 1..=2 {
        let pass = advance_backfills(&s.pool, &cursor, Duration::ZERO, DefaultRate(0), s.clock.now()).await.unwrap();
        assert!(pass.has_more);
        let advanced = "SELECT count(DISTINCT workflow_id) FROM runs WHERE trigger = 'backfill'";
        assert_eq!(s.count(advanced).await, processed);
    }
    s.end_early().await;
}

/// Two runs a minute: the job starts two, and neither their ends nor its next turn start the third before its time.
#[tokio::test]
async fn backfills_keep_to_their_teams_limit() {
    let app = |config: &mut app::Config| config.team_fires_per_minute = 2;
    let (s, wf) = outage(StackOptions { app, ..StackOptions::default() }).await;
    let requested = ask(&s, wf, &morning(json!({"max_concurrent": 10}))).await.expect(202).json;
    assert_eq!(requested["total"], 3);
    for _ in 0..3 {
        s.job("backfills").await;
        s.runs_end().await;
        s.job("queue").await;
        s.runs_end().await;
        assert_eq!(read(&s, &requested).await["started"], 2);
    }
    s.now_is("2026-03-02T12:10:30Z").await;
    let done = finished_backfill(&s, &requested).await;
    assert_eq!((&done["state"], &done["started"], &done["succeeded"]), (&json!("finished"), &json!(3), &json!(3)));
    assert_eq!(made(&s, wf).await, ["09:00", "10:00", "11:00"], "no time is passed over");
    s.end().await;
}

/// Backfills of all teams share connections with claims, so none of them may wait for another caller of its team.
#[tokio::test]
async fn backfills_wait_for_no_caller() {
    let app = |config: &mut app::Config| config.team_fires_per_minute = 60;
    let (s, wf) = outage(StackOptions { app, ..StackOptions::default() }).await;
    s.editor().post_empty(&format!("/api/v1/schedules/{wf}:fire")).await.expect(202);
    s.runs_end().await;
    let requested = ask(&s, wf, &morning(json!({}))).await.expect(202).json;
    let mut caller = session_without_limits(&s).await;
    sqlx::raw_sql("BEGIN; SELECT FROM team_requested_fires FOR UPDATE").execute(&mut caller).await.unwrap();
    // If it waited, it would fail by its limit for a lock.
    s.job("backfills").await;
    assert_eq!(read(&s, &requested).await["started"], 0);
    sqlx::raw_sql("ROLLBACK").execute(&mut caller).await.unwrap();
    assert_eq!(finished_backfill(&s, &requested).await["started"], 3);
    s.end().await;
}

/// A prune removes rows of the span while the backfill is paused. Their decisions are unknown, so these times must not
/// run.
#[tokio::test]
async fn a_pruned_time_is_never_missing() {
    let app = |config: &mut app::Config| config.retention_days = 15;
    let now = Some("2026-03-02T00:30:00Z".parse().unwrap());
    let s = Story::with(StackOptions { now, app, ..StackOptions::default() }).await;
    let receiver = Receiver::kind().await;
    let wf = s
        .create_with(json!({"cron_schedule": "0 * * * *", "catch_up_window_secs": 3600, "action": receiver.action()}))
        .await;
    s.publish().await;
    s.clock_to("2026-03-02T11:10:00Z").await;
    assert_eq!(receiver.received().len(), 11);
    // No other time of that day is delivered, so the watchdog records them as missed.
    s.now_is("2026-03-02T20:10:00Z").await;
    s.job("watchdog").await;
    s.runs_end().await;
    s.now_is("2026-03-17T00:00:00Z").await;
    s.job("watchdog").await;
    s.runs_end().await;
    let caught_up = receiver.received().len();
    let span = json!({"start": "2026-03-02T01:00:00Z", "end": "2026-03-02T20:30:00Z", "order": "newest_first"});
    let requested = ask(&s, wf, &span).await.expect(202).json;
    let missed = requested["total"].as_i64().unwrap();
    assert_eq!(missed, 8, "from 12:00 to 19:00: {requested}");
    verb(&s, &requested, "pause").await.expect(200);
    s.now_is("2026-03-17T16:30:00Z").await;
    s.job("prune").await;
    let fired = "SELECT count(*) FROM occurrences WHERE scheduled_time < '2026-03-02T12:00:00Z'";
    assert_eq!(s.count(fired).await, 0, "pruned; what was decided in the evening is kept");
    verb(&s, &requested, "resume").await.expect(200);
    s.job("backfills").await;
    s.until("SELECT count(*) FROM backfills WHERE state = 'finished'", 1).await;
    assert_eq!(read(&s, &requested).await["started"], missed);
    assert_eq!(
        receiver.received().len() - caught_up,
        usize::try_from(missed).unwrap(),
        "what fired does not run again"
    );
    s.publish().await;
    s.end().await;
}

#[tokio::test]
async fn a_finished_backfill_keeps_its_counts() {
    let (s, wf) = outage(StackOptions::default()).await;
    let requested = ask(&s, wf, &morning(json!({}))).await.expect(202).json;
    s.job("backfills").await;
    s.until("SELECT count(*) FROM backfills WHERE state = 'finished'", 1).await;
    let counts = |backfill: serde_json::Value| json!([backfill["started"], backfill["succeeded"], backfill["failed"]]);
    assert_eq!(counts(read(&s, &requested).await), json!([3, 3, 0]));
    // A prune leaves it while it ended within the retention, for example after a long pause.
    s.execute("UPDATE backfills SET finished_on = finished_on + INTERVAL '1 day'").await;
    s.now_is("2026-06-01T00:00:00Z").await;
    s.job("prune").await;
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE backfill_id IS NOT NULL").await, 0);
    assert_eq!(counts(read(&s, &requested).await), json!([3, 3, 0]));
    let listed = s.editor().get("/api/v1/backfills").await.expect(200).json;
    assert_eq!(counts(listed["items"][0].clone()), json!([3, 3, 0]));
    s.archive(wf).await;
    s.end().await;
}
