//! Execution: leases and their loss, timeouts, cancellation, and the pause after failures.

use std::time::Duration;

use app::jobs::Did;
use chrono::{DateTime, TimeDelta, Utc};
use executor::claim::{Claimed, Lease, Slots, claim_due_runs};
use ledger::runs::{self, Cancelled, Trigger};
use local::stack::StackOptions;
use serde_json::{Value, json};
use tests::{PATIENCE, Story};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::receiver::{NOON, Receiver, accept, run, until_state};
use crate::steps::{fire_on_time, hourly, start_run, story_without_executor};

/// A stack that renews its leases every 20 ms.
async fn with_heartbeat() -> Story {
    with(|config| config.heartbeat_ms = 20).await
}

/// A stack that renews no lease during a test.
async fn without_heartbeat() -> Story {
    with(|config| config.heartbeat_ms = 20_000).await
}

async fn with(app: fn(&mut app::Config)) -> Story {
    Story::with(StackOptions { now: Some(NOON.parse().unwrap()), app, ..StackOptions::default() }).await
}

pub(crate) async fn cancel(s: &Story, id: uuid::Uuid) -> Cancelled {
    runs::cancel_run(&mut s.pool.acquire().await.unwrap(), id, s.clock.now()).await.unwrap()
}

#[tokio::test]
async fn an_attempt_stops_at_its_workflows_timeout() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::slow().await;
    let wf = s.create_with(json!({"action": receiver.action(), "max_attempts": 2, "timeout_secs": 1})).await;
    let id = accept(&s, wf).await;
    s.until("SELECT count(*) FROM runs WHERE state = 'accepted' AND tries = 1 AND error = 'timed_out:1'", 1).await;
    s.now_is("2026-03-02T12:01:00Z").await;
    let ended = until_state(&s, id, "timed_out").await;
    assert_eq!((&ended["attempt"], &ended["error"]), (&json!(2), &json!("no answer within 1 s")));
    s.end().await;
}

/// The executor renews the lease, but does not stop the attempt at its timeout. The job ends it a minute later.
#[tokio::test]
async fn the_timeouts_job_ends_overdue_runs() {
    let s = with_heartbeat().await;
    let receiver = Receiver::slow().await;
    let wf = s.create_with(json!({"action": receiver.action(), "timeout_secs": 3600})).await;
    let id = accept(&s, wf).await;
    receiver.until(1).await;
    s.now_is("2026-03-02T13:00:59Z").await;
    s.until("SELECT count(*) FROM runs WHERE locked_at = cronbox_now()", 1).await;
    assert_eq!(s.job("timeouts").await, Did::Nothing, "a minute is left");
    s.now_is("2026-03-02T13:01:00Z").await;
    assert_eq!(timeouts_of_renewed(&s).await, Did::All("1 runs have timed out".to_owned()));
    let ended = run(&s, id).await;
    assert_eq!((&ended["state"], &ended["duration_ms"]), (&json!("timed_out"), &json!(3_660_000)));
    s.end().await;
}

/// Runs the job `timeouts` after the lease of the run was renewed.
async fn timeouts_of_renewed(s: &Story) -> Did {
    s.until("SELECT count(*) FROM runs WHERE locked_at = cronbox_now()", 1).await;
    for _ in 0..100 {
        // A turn that meets the heartbeat, which locks the run, leaves it to the next one.
        let did = s.job("timeouts").await;
        if did != Did::Nothing {
            return did;
        }
    }
    Did::Nothing
}

/// An attempt has the timeout of its claim: an edit that shortens the timeout of its workflow does not make it stuck.
#[tokio::test]
async fn a_shorter_timeout_ends_no_healthy_attempt() {
    let s = with_heartbeat().await;
    let receiver = Receiver::slow().await;
    let wf = s.create_with(json!({"action": receiver.action(), "timeout_secs": 3600})).await;
    let id = accept(&s, wf).await;
    receiver.until(1).await;
    s.now_is("2026-03-02T12:20:00Z").await;
    s.edit(wf, json!({"timeout_secs": 900})).await;
    s.edit(wf, json!({"timeout_secs": 600})).await;
    for now in ["2026-03-02T12:20:01Z", "2026-03-02T13:00:59Z"] {
        s.now_is(now).await;
        assert_eq!(timeouts_of_renewed(&s).await, Did::Nothing, "{now}");
    }
    assert_eq!(run(&s, id).await["state"], "running");
    s.now_is("2026-03-02T13:01:00Z").await;
    assert_eq!(timeouts_of_renewed(&s).await, Did::All("1 runs have timed out".to_owned()));
    assert_eq!(run(&s, id).await["state"], "timed_out");

    // A later attempt has the shorter one.
    let next = accept(&s, wf).await;
    receiver.until(2).await;
    s.now_is("2026-03-02T13:12:00Z").await;
    assert_eq!(timeouts_of_renewed(&s).await, Did::All("1 runs have timed out".to_owned()));
    assert_eq!(run(&s, next).await["state"], "timed_out");
    s.end().await;
}

/// What an instance claims whose sample of the database's clock shows `sampled`.
async fn claimed_at(s: &Story, sampled: DateTime<Utc>) -> Vec<Claimed> {
    let lease = Lease { instance: uuid::Uuid::new_v4(), secs: 120.0 };
    let mut db = s.pool.acquire().await.unwrap();
    claim_due_runs(&mut db, lease, &Slots::all_free(10), &[], sampled).await.unwrap()
}

/// The database's clock has stepped ahead, and the instance that claims has not sampled it since.
#[tokio::test]
async fn a_stale_clock_makes_no_attempt_stuck() {
    let s = story_without_executor(NOON).await;
    let id = accept(&s, s.create_with(json!({"timeout_secs": 300})).await).await;
    assert_eq!(claimed_at(&s, s.clock.now() - TimeDelta::hours(1)).await.len(), 1);
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE started_on = cronbox_now()").await, 1);
    assert_eq!(s.job("timeouts").await, Did::Nothing, "it has just begun");
    assert_eq!(run(&s, id).await["state"], "running");
    s.end_early().await;
}

#[tokio::test]
async fn a_stale_clock_starts_no_expired_run() {
    let s = story_without_executor("2026-03-02T10:30:00Z").await;
    let wf = hourly(&s, json!({"catch_up_window_secs": 60})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T11:00:00Z").await, "accepted");
    let sampled = s.clock.now();
    s.now_is(NOON).await;
    assert_eq!(claimed_at(&s, sampled).await.len(), 0, "it expired an hour ago");
    s.end_early().await;
}

/// An attempt begins at the time of the database, and ends at that of the sample.
#[tokio::test]
async fn a_stale_clock_ends_no_run_before_its_start() {
    let s = Story::at(NOON).await;
    let wf = s.create_with(json!({})).await;
    s.execute("UPDATE settable_clock SET now = now + INTERVAL '1 hour'").await;
    let id = accept(&s, wf).await;
    let ended = until_state(&s, id, "succeeded").await;
    assert_eq!((&ended["finished_on"], &ended["duration_ms"]), (&ended["started_on"], &json!(0)));
    s.now_is("2026-03-02T13:00:00Z").await;
    s.end().await;
}

#[tokio::test]
async fn timeouts_leave_lost_runs_to_recovery() {
    let s = without_heartbeat().await;
    let receiver = Receiver::slow().await;
    let wf = s.create_with(json!({"action": receiver.action(), "timeout_secs": 60})).await;
    let id = accept(&s, wf).await;
    receiver.until(1).await;
    s.now_is("2026-03-02T12:10:00Z").await;
    assert_eq!(s.job("timeouts").await, Did::Nothing, "no instance executes it: recovery decides");
    assert_eq!(run(&s, id).await["state"], "running");
    receiver.let_answer(1);
    until_state(&s, id, "succeeded").await;
    s.end().await;
}

#[tokio::test]
async fn heartbeats_protect_long_runs_from_recovery() {
    let s = with_heartbeat().await;
    let receiver = Receiver::slow().await;
    let wf = s.create_with(json!({"action": receiver.action(), "timeout_secs": 86_400})).await;
    let id = accept(&s, wf).await;
    receiver.until(1).await;
    for hour in 13..18 {
        let now: DateTime<Utc> = format!("2026-03-02T{hour}:00:00Z").parse().unwrap();
        s.set_clock(now).await;
        s.until("SELECT count(*) FROM runs WHERE locked_at = cronbox_now()", 1).await;
        assert_eq!(s.job("recovery").await, Did::Nothing);
    }
    receiver.let_answer(1);
    assert_eq!(until_state(&s, id, "succeeded").await["attempt"], 1);
    s.end().await;
}

/// Recovery has started a second attempt when the first one completes.
#[tokio::test]
async fn a_late_completion_only_sets_late_result() {
    let mut s = without_heartbeat().await;
    let receiver = Receiver::slow().await;
    let wf = s.create_with(json!({"action": receiver.action()})).await;
    let id = accept(&s, wf).await;
    receiver.until(1).await;
    s.now_is("2026-03-02T12:02:01Z").await;
    assert_eq!(s.job("recovery").await, Did::All("lost runs: 1 continue, 0 abandoned, 0 cancelled".to_owned()));
    // The first instance claims no second attempt beside its own, so another instance must.
    s.another_url().await;
    receiver.until(2).await;
    // The first attempt has lost the run, and it answers first.
    receiver.let_answer(1);
    s.until(
        "SELECT count(*) FROM runs WHERE late_result ->> 'state' = 'succeeded' AND late_result -> 'attempt' = '1'",
        1,
    )
    .await;
    assert_eq!(run(&s, id).await["state"], "running", "the second attempt goes on");
    receiver.let_answer(1);
    let done = until_state(&s, id, "succeeded").await;
    assert_eq!(done["attempt"], 2);
    let [first, second] = &receiver.calls()[..] else { panic!("two calls") };
    assert_eq!((&first["run_id"], &second["run_id"]), (&json!(id), &json!(id)), "a receiver recognises a repeat");
    let said =
        |call: &Value| (call["context"]["is_recovery"].clone(), call["context"]["recovery_attempt_time"].clone());
    assert_eq!(said(first), (json!(false), Value::Null));
    assert_eq!(said(second), (json!(true), json!("2026-03-02T12:02:01Z")));
    s.end().await;
}

/// The completion is kept in `late_result`.
#[tokio::test]
async fn a_late_completion_revives_no_abandoned_run() {
    let s = without_heartbeat().await;
    let receiver = Receiver::slow().await;
    let wf = s.create_with(json!({"action": receiver.action(), "on_lost": "abandon"})).await;
    let id = accept(&s, wf).await;
    receiver.until(1).await;
    s.now_is("2026-03-02T12:02:01Z").await;
    s.job("recovery").await;
    receiver.let_answer(1);
    s.until("SELECT count(*) FROM runs WHERE late_result ->> 'state' = 'succeeded'", 1).await;
    let ended = run(&s, id).await;
    assert_eq!((&ended["state"], &ended["result"]), (&json!("abandoned"), &Value::Null));
    s.end().await;
}

#[tokio::test]
async fn attempts_stop_when_their_run_is_lost() {
    let s = with_heartbeat().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let wf = s.create_with(json!({"action": {"type": "http", "method": "POST", "url": url}})).await;
    let id = accept(&s, wf).await;
    let (mut connection, _) = silent.accept().await.unwrap();
    s.until("SELECT count(*) FROM runs WHERE state = 'running'", 1).await;
    s.execute("UPDATE runs SET locked_by = gen_random_uuid(), attempt = attempt + 1").await;
    assert_hung_up(&mut connection).await;
    let theirs = run(&s, id).await;
    assert_eq!((&theirs["state"], &theirs["attempt"]), (&json!("running"), &json!(2)), "theirs, untouched");
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE late_result IS NOT NULL").await, 0);
    cancel(&s, id).await;
    s.now_is("2026-03-02T12:02:01Z").await;
    s.job("recovery").await;
    assert_eq!(run(&s, id).await["state"], "cancelled", "not taken over only to be stopped");
    s.end().await;
}

async fn assert_hung_up(connection: &mut tokio::net::TcpStream) {
    let mut received = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, connection.read_to_end(&mut received)).await;
    ended.expect("the request goes on").ok();
}

/// A run between two tries is cancelled at once, a running one by its executor.
#[tokio::test]
async fn runs_can_be_cancelled_until_they_end() {
    let s = with_heartbeat().await;
    let receiver = Receiver::answering(&[(500, "")]).await;
    let wf = s.create_with(json!({"action": receiver.action(), "max_attempts": 2})).await;
    let waits = accept(&s, wf).await;
    s.until("SELECT count(*) FROM runs WHERE state = 'accepted' AND tries = 1", 1).await;
    assert_eq!(cancel(&s, waits).await, Cancelled::FreedSlot, "between two tries");
    assert_eq!(run(&s, waits).await["state"], "cancelled");
    assert_eq!(cancel(&s, waits).await, Cancelled::TooLate);
    s.execute("UPDATE runs SET late_result = NULL").await;

    let queued = accept(&s, s.create_with(json!({"action": receiver.action()})).await).await;
    until_state(&s, queued, "succeeded").await;
    assert_eq!(cancel(&s, queued).await, Cancelled::TooLate);
    assert_eq!(cancel(&s, uuid::Uuid::nil()).await, Cancelled::TooLate, "there is none");

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let wf = s.create_with(json!({"action": {"type": "http", "method": "POST", "url": url}, "max_attempts": 5})).await;
    let runs = accept(&s, wf).await;
    let (mut connection, _) = silent.accept().await.unwrap();
    until_state(&s, runs, "running").await;
    assert_eq!(cancel(&s, runs).await, Cancelled::Requested);
    assert_hung_up(&mut connection).await;
    let ended = until_state(&s, runs, "cancelled").await;
    assert_eq!(ended["error"], "cancelled on request");
    assert_eq!(ended["error_code"], "cancelled_on_request");
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE late_result IS NOT NULL").await, 0);
    s.end().await;
}

/// The attempt fails after the request to cancel. The run is cancelled, and the next one gets its slot.
#[tokio::test]
async fn a_run_being_cancelled_is_not_retried() {
    let s = without_heartbeat().await;
    let receiver = Receiver::slow().await;
    // The request to cancel comes before the timeout, also on a slow machine.
    let policies =
        json!({"overlap_policy": "queue", "max_attempts": 5, "timeout_secs": 5, "action": receiver.action()});
    let wf = s.create_with(policies).await;
    let id = accept(&s, wf).await;
    receiver.until(1).await;
    assert_eq!(start_run(&s, wf, Trigger::Manual, NOON).await, "queued");
    assert_eq!(cancel(&s, id).await, Cancelled::Requested);
    let ended = until_state(&s, id, "cancelled").await;
    assert_eq!(ended["error_code"], "cancelled_on_request", "not the reason of the attempt");
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE tries = 1 AND late_result IS NULL").await, 1);
    // The job `queue` does not run here.
    receiver.let_answer(2);
    receiver.until(2).await;
    s.until("SELECT count(*) FROM runs WHERE state = 'succeeded'", 1).await;
    s.end().await;
}

#[tokio::test]
async fn a_runs_inputs_replace_the_workflows() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::kind().await;
    let wf = s.create_with(json!({"action": receiver.action(), "starting_inputs": {"a": 1}})).await;
    s.until("SELECT count(*) FROM workflows", 1).await;
    let fired = "INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on, inputs)
                 VALUES (gen_random_uuid(), $1, 'manual', 'accepted', $2, $2, '{\"b\": 2}')";
    sqlx::query(fired).bind(wf.0).bind(s.clock.now()).execute(&s.pool).await.unwrap();
    receiver.until(1).await;
    assert_eq!(receiver.calls()[0]["inputs"], json!({"b": 2}));
    accept(&s, wf).await;
    receiver.until(2).await;
    assert_eq!(receiver.calls()[1]["inputs"], json!({"a": 1}));
    s.end().await;
}

/// A success or a resume sets the count back.
#[tokio::test]
async fn failures_in_a_row_pause_a_workflow() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::answering(&[(500, ""), (200, ""), (500, ""), (404, ""), (500, ""), (500, "")]).await;
    let policies = json!({"action": receiver.action(), "cron_schedule": "0 9 * * *", "pause_after_failures": 2});
    let wf = s.create_with(policies).await;
    s.publish().await;
    for (minute, state) in [(1, "failed"), (2, "succeeded"), (3, "failed")] {
        s.now_is(&format!("2026-03-02T12:0{minute}:00Z")).await;
        let id = accept(&s, wf).await;
        until_state(&s, id, state).await;
    }
    assert_eq!(s.workflow(wf).await["state"], "active", "a success in between begins a new row");
    s.now_is("2026-03-02T12:04:00Z").await;
    accept(&s, wf).await;
    s.until("SELECT count(*) FROM workflows WHERE state = 'paused'", 1).await;
    let paused = s.workflow(wf).await;
    assert_eq!(paused["pause_reason"], "paused by cronbox: 2 runs in a row have failed");
    assert_eq!(paused["pause_reason_code"], "failures_in_a_row");
    assert_eq!(s.table("SELECT actor || ' ' || verb FROM audit_log WHERE actor = 'cronbox'").await, "cronbox pause");
    s.publish().await;
    assert!(s.schedule(wf).ends_with("DISABLED"), "{}", s.schedule(wf));
    s.now_is("2026-03-02T12:30:00Z").await;
    s.resume(wf).await;
    let id = accept(&s, wf).await;
    until_state(&s, id, "failed").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(s.workflow(wf).await["state"], "active", "what failed before the resume is not counted");
    s.now_is("2026-03-02T12:31:00Z").await;
    accept(&s, wf).await;
    s.until("SELECT count(*) FROM workflows WHERE state = 'paused'", 1).await;
    s.end().await;
}
