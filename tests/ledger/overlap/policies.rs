//! Each overlap policy, and the order of waiting runs.

use ledger::runs::Trigger;
use serde_json::json;
use tests::PATIENCE;

use crate::steps::{claimed, ended, fire, fire_on_time, hourly, start_run, story_without_executor};

/// Each skipped time is recorded as `skipped_overlap`.
#[tokio::test]
async fn under_skip_a_running_predecessor_skips_fires() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    claimed(&s, wf).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await, "overlap", "running takes the slot");
    assert_eq!(fire(&s, wf, "2026-03-02T10:00:00Z").await, "overlap", "and the decision is repeated");
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T11:00:00Z").await, "overlap");
    ended(&s, wf).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T12:00:00Z").await, "accepted");
    assert_eq!(
        s.occurrences(wf).await,
        "2026-03-02T09:00Z fired\n2026-03-02T10:00Z skipped_overlap\n\
         2026-03-02T11:00Z skipped_overlap\n2026-03-02T12:00Z fired"
    );
    s.end_early().await;
}

/// The next time is skipped, and recorded with the reason `queue_full`.
#[tokio::test]
async fn under_queue_100_runs_wait_in_order() {
    let s = story_without_executor("2026-03-02T08:59:30Z").await;
    let wf = s.create_with(json!({"cron_schedule": "* * * * *", "overlap_policy": "queue"})).await;
    let minute = |nth: u32| format!("2026-03-02T{:02}:{:02}:00Z", 9 + nth / 60, nth % 60);
    for nth in 0..=100 {
        assert_eq!(fire_on_time(&s, wf, &minute(nth)).await, "accepted", "{nth}");
    }
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'queued'").await, 100);
    assert_eq!(fire_on_time(&s, wf, &minute(101)).await, "overlap");
    assert_eq!(s.count("SELECT count(*) FROM occurrences WHERE reason = 'queue_full'").await, 1);
    for nth in 1..=3 {
        ended(&s, wf).await;
        let started = format!("{}Z schedule accepted", &minute(nth)[..16]);
        assert!(s.runs(wf).await.contains(&started), "the first that waits starts: {started}");
        assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'accepted'").await, 1);
    }
    s.end_early().await;
}

#[tokio::test]
async fn under_queue_one_a_single_time_waits() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "queue_one"})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await, "accepted");
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T11:00:00Z").await, "overlap");
    assert_eq!(s.runs(wf).await, "2026-03-02T09:00Z schedule accepted\n2026-03-02T10:00Z schedule queued");
    ended(&s, wf).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T12:00:00Z").await, "accepted");
    assert_eq!(
        s.runs(wf).await,
        "2026-03-02T09:00Z schedule succeeded\n2026-03-02T10:00Z schedule accepted\n2026-03-02T12:00Z schedule queued"
    );
    s.end_early().await;
}

#[tokio::test]
async fn under_concurrent_max_concurrent_limits_the_runs() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "concurrent", "max_concurrent": 2})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await, "accepted");
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T11:00:00Z").await, "overlap");
    assert_eq!(s.runs(wf).await, "2026-03-02T09:00Z schedule accepted\n2026-03-02T10:00Z schedule accepted");
    s.end_early().await;
}

#[tokio::test]
async fn under_replace_new_runs_await_running_ones() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "replace"})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    // The replaced run has not started, so it never will, and the new run does not wait for it.
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await, "accepted");
    assert_eq!(s.runs(wf).await, "2026-03-02T09:00Z schedule cancelled\n2026-03-02T10:00Z schedule accepted");
    claimed(&s, wf).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T11:00:00Z").await, "accepted");
    let requested = "SELECT count(*) FROM runs WHERE state = 'running' AND cancel_requested_on IS NOT NULL";
    assert_eq!(s.count(requested).await, 1);
    // The newest run also replaces one that waits.
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T12:00:00Z").await, "accepted");
    ledger::admission::queue::advance_all(&s.pool, s.clock.now()).await.unwrap();
    assert_eq!(
        s.runs(wf).await,
        "2026-03-02T09:00Z schedule cancelled\n2026-03-02T10:00Z schedule running\n\
         2026-03-02T11:00Z schedule cancelled\n2026-03-02T12:00Z schedule queued"
    );
    ended(&s, wf).await;
    assert!(s.runs(wf).await.ends_with("2026-03-02T12:00Z schedule accepted"));
    s.end_early().await;
}

#[tokio::test]
async fn under_replace_dead_instances_delay_no_run() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "replace"})).await;
    fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await;
    claimed(&s, wf).await;
    // The instance of the first run dies now, without a last heartbeat.
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await, "accepted");
    s.job("recovery").await;
    s.job("queue").await;
    assert_eq!(s.runs(wf).await, "2026-03-02T09:00Z schedule cancelled\n2026-03-02T10:00Z schedule accepted");
    s.end_early().await;
}

#[tokio::test]
async fn deferred_runs_wait_behind_live_runs() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    assert_eq!(start_run(&s, wf, Trigger::CatchUp, "2026-03-01T01:00:00Z").await, "accepted");
    assert_eq!(start_run(&s, wf, Trigger::CatchUp, "2026-03-01T02:00:00Z").await, "queued");
    assert_eq!(start_run(&s, wf, Trigger::Retry, "2026-03-01T03:00:00Z").await, "queued");
    // A deferred run has the slot, so the fire waits and is not skipped.
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    assert!(s.runs(wf).await.ends_with("2026-03-02T09:00Z schedule queued"));
    // Now a live run waits, and the next one replaces it.
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await, "accepted");
    assert!(s.runs(wf).await.ends_with("2026-03-02T09:00Z schedule cancelled\n2026-03-02T10:00Z schedule queued"));
    ended(&s, wf).await;
    assert!(s.runs(wf).await.ends_with("2026-03-02T10:00Z schedule accepted"), "before those that came first");
    ended(&s, wf).await;
    ended(&s, wf).await;
    assert_eq!(
        s.runs(wf).await,
        "2026-03-01T01:00Z catch_up succeeded\n2026-03-01T02:00Z catch_up succeeded\n\
         2026-03-01T03:00Z retry accepted\n2026-03-02T09:00Z schedule cancelled\n2026-03-02T10:00Z schedule succeeded"
    );
    s.end_early().await;
}

/// A catch-up runs and two wait for their turn, although `concurrent` has free slots. A pass has nothing to do for them, so
/// it waits for no lock of the workflow.
#[tokio::test]
async fn passes_lock_no_workflow_in_vain() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "concurrent"})).await;
    let catch_ups = [("2026-03-01T01:00:00Z", "accepted"), ("2026-03-01T02:00:00Z", "queued")];
    for (time, state) in catch_ups {
        assert_eq!(start_run(&s, wf, Trigger::CatchUp, time).await, state);
        s.set_clock(s.clock.now() + chrono::TimeDelta::seconds(1)).await;
    }
    assert_eq!(start_run(&s, wf, Trigger::Backfill, "2026-03-01T03:00:00Z").await, "queued");
    claimed(&s, wf).await;
    let mut edit = db::begin_transaction(&s.pool).await.unwrap();
    workflows::lock_workflow(&mut edit, wf, None, s.clock.now()).await.unwrap();
    let pass = tokio::time::timeout(PATIENCE, ledger::admission::queue::advance_all(&s.pool, s.clock.now())).await;
    assert_eq!(pass.expect("it waits for the workflow").unwrap(), ledger::admission::queue::Pass::default());
    edit.rollback().await.unwrap();
    s.end_early().await;
}

/// Their backfill says how many of them run at once. The instance that has ended one is lost before it promotes the next.
#[tokio::test]
async fn backfills_run_beside_each_other() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "concurrent", "max_concurrent": 2})).await;
    for state in ["accepted", "accepted", "queued"] {
        assert_eq!(start_run(&s, wf, Trigger::Backfill, "2026-03-01T01:00:00Z").await, state);
    }
    claimed(&s, wf).await;
    let end = "UPDATE runs SET state = 'succeeded', finished_on = $1, locked_by = NULL, locked_at = NULL
                WHERE id = (SELECT id FROM runs WHERE state = 'running' LIMIT 1)";
    sqlx::query(end).bind(s.clock.now()).execute(&s.pool).await.unwrap();
    assert_eq!(ledger::admission::queue::advance_all(&s.pool, s.clock.now()).await.unwrap().promoted, 1);
    s.end_early().await;
}

#[tokio::test]
async fn waiting_manual_runs_take_no_slot() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    assert_eq!(start_run(&s, wf, Trigger::Manual, "2026-03-01T01:00:00Z").await, "accepted");
    let refused = "previous_run_not_ended";
    assert_eq!(start_run(&s, wf, Trigger::Manual, "2026-03-01T02:00:00Z").await, refused);
    ended(&s, wf).await;
    assert_eq!(start_run(&s, wf, Trigger::Retry, "2026-03-01T03:00:00Z").await, "accepted");
    assert_eq!(start_run(&s, wf, Trigger::Manual, "2026-03-01T04:00:00Z").await, "queued");
    assert_eq!(start_run(&s, wf, Trigger::Manual, "2026-03-01T05:00:00Z").await, refused, "a manual run waits already");
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted", "the schedule's own is not skipped");
    s.end_early().await;
}

/// The occurrence is abandoned, too. A run of a backfill continues to wait.
#[tokio::test]
async fn queued_runs_are_abandoned_after_the_window() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "queue", "catch_up_window_secs": 5400})).await;
    fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await;
    claimed(&s, wf).await;
    fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await;
    assert_eq!(start_run(&s, wf, Trigger::Backfill, "2026-03-01T01:00:00Z").await, "queued");
    s.now_is("2026-03-02T11:31:05Z").await;
    assert_eq!(
        ledger::admission::queue::advance_all(&s.pool, s.clock.now()).await.unwrap(),
        ledger::admission::queue::Pass::default()
    );
    s.now_is("2026-03-02T11:31:06Z").await;
    assert_eq!(ledger::admission::queue::advance_all(&s.pool, s.clock.now()).await.unwrap().abandoned, 1);
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z fired\n2026-03-02T10:00Z abandoned");
    let runs = s.runs(wf).await;
    assert!(runs.starts_with("2026-03-01T01:00Z backfill queued"), "what a person asked for waits on: {runs}");
    assert_eq!(fire(&s, wf, "2026-03-02T10:00:00Z").await, "duplicate", "and it is not run after all");
    s.end_early().await;
}

/// An archive cancels them.
#[tokio::test]
async fn queued_runs_wait_through_a_pause() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "queue"})).await;
    fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await;
    fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await;
    // No executor claims an automatic run during a pause.
    claimed(&s, wf).await;
    s.pause(wf).await;
    ended(&s, wf).await;
    assert!(s.runs(wf).await.ends_with("2026-03-02T10:00Z schedule queued"));
    assert_eq!(
        start_run(&s, wf, Trigger::Manual, "2026-03-01T01:00:00Z").await,
        "accepted",
        "what waits takes no slot"
    );
    ended(&s, wf).await;
    s.resume(wf).await;
    ledger::admission::queue::advance_all(&s.pool, s.clock.now()).await.unwrap();
    assert!(s.runs(wf).await.ends_with("2026-03-02T10:00Z schedule accepted"));
    fire_on_time(&s, wf, "2026-03-02T11:00:00Z").await;
    s.archive(wf).await;
    assert!(s.runs(wf).await.ends_with("2026-03-02T11:00Z schedule cancelled"));
    assert!(s.occurrences(wf).await.ends_with("2026-03-02T11:00Z fired"));
    s.end_early().await;
}

/// The runs start at different seconds of the spread.
#[tokio::test]
async fn a_spread_ends_before_the_next_time() {
    let s = story_without_executor("2026-03-02T08:59:30Z").await;
    let mut workflows = Vec::new();
    for _ in 0..20 {
        workflows.push(s.create_with(json!({"cron_schedule": "* * * * *", "spread_secs": 3600})).await);
    }
    for wf in workflows {
        assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    }
    let within = "SELECT count(*) FROM runs WHERE run_after BETWEEN '2026-03-02T09:00:00Z' AND '2026-03-02T09:00:59Z'";
    assert_eq!(s.count(within).await, 20);
    assert!(s.count("SELECT count(DISTINCT run_after) FROM runs").await > 10);
    s.end_early().await;
}
