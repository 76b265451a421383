//! Pausing, archiving and replacing: runs that have not started wait or end, and running ones are requested to stop.

use app::jobs::Did;
use local::stack::StackOptions;
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::{PATIENCE, Story};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};

use executor::claim::{Lease, Slots};
use ledger::runs::Trigger;

use crate::catch_up::watchdog_races::{WAITING, lock_workflow};
use crate::receiver::{NOON, Receiver, accept, until_state};
use crate::steps::{claimed, ended, fire, fire_on_time, hourly, start_run, story_without_executor};

/// A stack that sends a heartbeat every 20 ms.
async fn beating() -> Story {
    let app = |config: &mut app::Config| config.heartbeat_ms = 20;
    Story::with(StackOptions { now: Some(NOON.parse().unwrap()), app, ..StackOptions::default() }).await
}

/// Returns after the executor has claimed and ended a run that was accepted after all others.
async fn executor_came_by(s: &Story) {
    let other = s.create_with(json!({})).await;
    let last = accept(s, other).await;
    until_state(s, last, "succeeded").await;
}

/// The id of a workflow's newest run.
async fn newest_run(s: &Story, wf: WorkflowId) -> uuid::Uuid {
    s.runs_of(wf).await[0]["id"].as_str().unwrap().parse().unwrap()
}

/// A run of the schedule whose first try failed at noon, and that waits for its second try.
async fn failed_once(s: &Story, receiver: &Receiver) -> WorkflowId {
    let wf = hourly(s, json!({"action": receiver.action(), "max_attempts": 5})).await;
    assert_eq!(fire(s, wf, NOON).await, "accepted");
    receiver.until(1).await;
    s.until("SELECT count(*) FROM runs WHERE state = 'accepted' AND tries = 1", 1).await;
    wf
}

#[tokio::test]
async fn accepted_runs_wait_during_a_pause() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::answering(&[(503, "")]).await;
    let wf = failed_once(&s, &receiver).await;
    s.pause(wf).await;
    s.now_is("2026-03-02T12:30:00Z").await;
    executor_came_by(&s).await;
    assert_eq!(receiver.received().len(), 1, "the pause comes before the second try");
    assert_eq!(s.runs(wf).await, "2026-03-02T12:00Z schedule accepted");
    // Manual runs still start, under every overlap policy.
    s.editor().post_empty(&format!("/api/v1/schedules/{wf}:fire")).await.expect(202);
    receiver.until(2).await;
    until_state(&s, newest_run(&s, wf).await, "succeeded").await;
    executor_came_by(&s).await;
    assert_eq!(receiver.received().len(), 2, "the schedule's run still waits");
    s.resume(wf).await;
    s.job("queue").await;
    receiver.until(3).await;
    s.runs_end().await;
    assert_eq!(s.runs(wf).await, "2026-03-02T12:00Z schedule succeeded\nuntimed manual succeeded");
    s.end().await;
}

/// The schedule's run waits for a slot behind a manual run. Its window is over, but its tries are not used up.
#[tokio::test]
async fn a_pause_discards_no_retry() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::answering(&[(503, "")]).await;
    let wf = failed_once(&s, &receiver).await;
    s.edit(wf, json!({"catch_up_window_secs": 60})).await;
    s.pause(wf).await;
    s.now_is("2026-03-02T12:30:00Z").await;
    s.editor().post_empty(&format!("/api/v1/schedules/{wf}:fire")).await.expect(202);
    receiver.until(2).await;
    until_state(&s, newest_run(&s, wf).await, "succeeded").await;
    executor_came_by(&s).await;
    ledger::admission::queue::advance_workflow(&s.pool, wf, s.clock.now()).await.unwrap();
    assert_eq!(s.runs(wf).await, "2026-03-02T12:00Z schedule queued\nuntimed manual succeeded");
    s.resume(wf).await;
    s.job("queue").await;
    receiver.until(3).await;
    s.runs_end().await;
    assert_eq!(s.runs(wf).await, "2026-03-02T12:00Z schedule succeeded\nuntimed manual succeeded");
    s.end().await;
}

#[tokio::test]
async fn an_ended_pause_delays_nothing() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::answering(&[(503, "")]).await;
    let wf = failed_once(&s, &receiver).await;
    let until = json!({"until": "2026-03-02T12:20:00Z"});
    s.editor().post(&format!("/api/v1/workflows/{wf}:pause"), &until).await.expect(200);
    s.now_is("2026-03-02T12:19:59Z").await;
    executor_came_by(&s).await;
    assert_eq!(receiver.received().len(), 1);
    s.now_is("2026-03-02T12:20:00Z").await;
    receiver.until(2).await;
    s.end().await;
}

#[tokio::test]
async fn archiving_cancels_runs_that_have_not_started() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "queue"})).await;
    fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await;
    fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await;
    assert_eq!(start_run(&s, wf, Trigger::Backfill, "2026-03-01T01:00:00Z").await, "queued");
    s.archive(wf).await;
    assert_eq!(
        s.runs(wf).await,
        "2026-03-01T01:00Z backfill cancelled\n2026-03-02T09:00Z schedule cancelled\n2026-03-02T10:00Z schedule cancelled"
    );
    assert_eq!(s.table("SELECT DISTINCT error FROM runs").await, "workflow_archived");
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z fired\n2026-03-02T10:00Z fired");
    s.end_early().await;
}

#[tokio::test]
async fn archiving_cancels_a_run_between_tries() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::answering(&[(503, "")]).await;
    let wf = failed_once(&s, &receiver).await;
    s.archive(wf).await;
    s.now_is("2026-03-02T12:30:00Z").await;
    executor_came_by(&s).await;
    assert_eq!(receiver.received().len(), 1);
    assert_eq!(s.runs(wf).await, "2026-03-02T12:00Z schedule cancelled");
    s.end().await;
}

/// An action that is never answered. Its connection shows when the attempt stops.
async fn never_answered(s: &Story, policies: Value) -> (WorkflowId, TcpListener) {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let mut fields = json!({"action": {"type": "http", "method": "POST", "url": url}});
    fields.as_object_mut().unwrap().extend(policies.as_object().unwrap().clone());
    (hourly(s, fields).await, silent)
}

async fn assert_hung_up(mut connection: TcpStream) {
    let mut received = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, connection.read_to_end(&mut received)).await;
    ended.expect("the request goes on").ok();
}

#[tokio::test]
async fn archiving_stops_running_attempts() {
    let s = beating().await;
    let (wf, silent) = never_answered(&s, json!({})).await;
    assert_eq!(fire(&s, wf, NOON).await, "accepted");
    let (connection, _) = silent.accept().await.unwrap();
    let id = newest_run(&s, wf).await;
    until_state(&s, id, "running").await;
    s.archive(wf).await;
    assert_hung_up(connection).await;
    assert_eq!(until_state(&s, id, "cancelled").await["error"], "the workflow was archived");
    s.end().await;
}

#[tokio::test]
async fn replace_stops_a_running_attempt() {
    let s = beating().await;
    let (wf, silent) = never_answered(&s, json!({"overlap_policy": "replace", "cron_schedule": "* * * * *"})).await;
    assert_eq!(fire(&s, wf, NOON).await, "accepted");
    let (connection, _) = silent.accept().await.unwrap();
    let replaced = newest_run(&s, wf).await;
    until_state(&s, replaced, "running").await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T12:01:00Z").await, "accepted");
    assert_hung_up(connection).await;
    assert_eq!(until_state(&s, replaced, "cancelled").await["error"], "replaced by a later run");
    let (_connection, _) = silent.accept().await.unwrap();
    s.archive(wf).await;
    s.end().await;
}

#[tokio::test]
async fn replace_leaves_deferred_runs_alone() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "replace"})).await;
    assert_eq!(start_run(&s, wf, Trigger::Backfill, "2026-03-01T01:00:00Z").await, "accepted");
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted", "before it has started");
    claimed(&s, wf).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await, "accepted", "and while it runs");
    let requested = "SELECT count(*) FROM runs WHERE cancel_requested_on IS NOT NULL AND trigger = 'backfill'";
    assert_eq!(s.count(requested).await, 0);
    ended(&s, wf).await;
    assert_eq!(
        s.runs(wf).await,
        "2026-03-01T01:00Z backfill succeeded\n2026-03-02T09:00Z schedule cancelled\n2026-03-02T10:00Z schedule accepted"
    );
    s.end_early().await;
}

/// An accepted run of the schedule from three days ago, as it remains after the app was scaled to zero.
const LEFT: &str = "WITH o AS (
        INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, revision, run_id, lateness_s, decided_on, created_on, updated_on)
        VALUES (gen_random_uuid(), $1, '2026-02-27T12:00:00Z', 'fired', 1, gen_random_uuid(), 0,
                '2026-02-27T12:00:00Z', '2026-02-27T12:00:00Z', '2026-02-27T12:00:00Z')
        RETURNING *)
    INSERT INTO runs (id, workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, created_on)
    SELECT run_id, workflow_id, id, 'schedule', 'accepted', scheduled_time, scheduled_time, scheduled_time FROM o";

#[tokio::test]
async fn a_run_of_last_week_never_starts() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::kind().await;
    let wf = hourly(&s, json!({"action": receiver.action()})).await;
    sqlx::query(LEFT).bind(wf.0).execute(&s.pool).await.unwrap();
    executor_came_by(&s).await;
    assert_eq!(receiver.received().len(), 0);
    s.job("queue").await;
    assert_eq!(s.runs(wf).await, "2026-02-27T12:00Z schedule abandoned");
    assert_eq!(s.occurrences(wf).await, "2026-02-27T12:00Z abandoned");
    s.end().await;
}

#[tokio::test]
async fn accepted_runs_expire_after_window_or_spread() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let windowed = hourly(&s, json!({"catch_up_window_secs": 3600})).await;
    let spread = hourly(&s, json!({"catch_up_window_secs": 60, "spread_secs": 3600})).await;
    let tried = hourly(&s, json!({"catch_up_window_secs": 3600})).await;
    for wf in [windowed, spread, tried] {
        assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    }
    claimed(&s, tried).await;
    s.execute(
        "UPDATE runs SET state = 'accepted', tries = 1, locked_by = NULL, locked_at = NULL, lease_until = NULL WHERE state = 'running'",
    )
    .await;
    assert_eq!(start_run(&s, tried, Trigger::Backfill, "2026-03-01T01:00:00Z").await, "queued");
    s.now_is("2026-03-02T10:00:05Z").await;
    s.job("queue").await;
    for wf in [windowed, spread] {
        assert_eq!(s.runs(wf).await, "2026-03-02T09:00Z schedule accepted");
    }
    s.now_is("2026-03-02T10:02:00Z").await;
    s.job("queue").await;
    for wf in [windowed, spread] {
        assert_eq!(s.runs(wf).await, "2026-03-02T09:00Z schedule abandoned");
        assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z abandoned");
    }
    assert_eq!(
        s.runs(tried).await,
        "2026-03-01T01:00Z backfill queued\n2026-03-02T09:00Z schedule accepted",
        "one that was tried goes on"
    );
    s.end_early().await;
}

/// How many runs an executor could claim now; claims none.
pub(crate) async fn claimable(s: &Story) -> usize {
    let mut tx = db::begin_transaction(&s.pool).await.unwrap();
    let (lease, slots) = (Lease { instance: uuid::Uuid::new_v4(), secs: 120.0 }, Slots::all_free(10));
    let claimed = executor::claim::claim_due_runs(&mut tx, lease, &slots, &[], s.clock.now()).await.unwrap();
    tx.rollback().await.unwrap();
    claimed.len()
}

/// A run that the watchdog has accepted waits and expires like the run of a fire.
#[tokio::test]
async fn caught_up_runs_wait_and_expire_too() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"catch_up_window_secs": 3600})).await;
    s.now_is("2026-03-02T09:10:00Z").await;
    s.job("watchdog").await;
    assert_eq!(s.runs(wf).await, "2026-03-02T09:00Z catch_up accepted");
    assert_eq!(claimable(&s).await, 1);
    s.pause(wf).await;
    assert_eq!(claimable(&s).await, 0, "paused");
    s.resume(wf).await;
    s.now_is("2026-03-02T10:10:00Z").await;
    assert_eq!(claimable(&s).await, 1, "as old as the window");
    s.now_is("2026-03-02T10:10:01Z").await;
    assert_eq!(claimable(&s).await, 0, "older, whether or not the job has come by");
    s.job("queue").await;
    assert_eq!(s.runs(wf).await, "2026-03-02T09:00Z catch_up abandoned");
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z abandoned");
    s.publish().await;
    s.end_early().await;
}

/// The job queues the runs of a paused workflow. They get their slots again in their order, by a resume and at the end of a
/// pause.
#[tokio::test]
async fn paused_runs_get_their_slots_again() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "concurrent", "max_concurrent": 2})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await, "accepted");
    s.pause(wf).await;
    s.job("queue").await;
    assert_eq!(s.runs(wf).await, "2026-03-02T09:00Z schedule queued\n2026-03-02T10:00Z schedule queued");
    assert_eq!(s.job("queue").await, Did::Nothing, "they wait");
    // A person takes one of the slots meanwhile.
    assert_eq!(start_run(&s, wf, Trigger::Manual, "2026-03-02T08:00:00Z").await, "accepted");
    s.resume(wf).await;
    let runs = s.runs(wf).await;
    assert!(runs.ends_with("2026-03-02T09:00Z schedule accepted\n2026-03-02T10:00Z schedule queued"), "{runs}");
    ended(&s, wf).await;
    assert!(s.runs(wf).await.ends_with("2026-03-02T10:00Z schedule accepted"), "{}", s.runs(wf).await);

    let until = json!({"until": "2026-03-02T10:20:00Z"});
    s.editor().post(&format!("/api/v1/workflows/{wf}:pause"), &until).await.expect(200);
    s.now_is("2026-03-02T10:19:59Z").await;
    s.job("queue").await;
    assert!(s.runs(wf).await.ends_with("2026-03-02T10:00Z schedule queued"), "{}", s.runs(wf).await);
    s.now_is("2026-03-02T10:20:00Z").await;
    s.job("queue").await;
    assert!(s.runs(wf).await.ends_with("2026-03-02T10:00Z schedule accepted"), "{}", s.runs(wf).await);
    assert_eq!(s.workflow(wf).await["state"], "active");
    s.end_early().await;
}

/// The pause ends within the window, and the job comes by after it. An executor would have claimed an accepted run meanwhile.
#[tokio::test]
async fn a_pause_that_ends_in_time_abandons_nothing() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"catch_up_window_secs": 3600})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    let until = json!({"until": "2026-03-02T10:00:00Z"});
    s.editor().post(&format!("/api/v1/workflows/{wf}:pause"), &until).await.expect(200);
    s.job("queue").await;
    assert_eq!(s.runs(wf).await, "2026-03-02T09:00Z schedule queued");
    s.now_is("2026-03-02T10:00:10Z").await;
    s.job("queue").await;
    assert_eq!(s.runs(wf).await, "2026-03-02T09:00Z schedule accepted");
    assert_eq!(claimable(&s).await, 1);
    s.end_early().await;
}

/// The pause ends while its request waits for the lock of the workflow.
#[tokio::test]
async fn a_pause_that_is_over_is_refused() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    let holder = lock_workflow(&s, wf).await;
    let (caller, path) = (s.editor(), format!("/api/v1/workflows/{wf}:pause"));
    let until = json!({"until": "2026-03-02T09:00:00Z"});
    let pausing = caller.post(&path, &until);
    let ending = async {
        s.until(WAITING, 1).await;
        s.now_is("2026-03-02T09:00:00Z").await;
        holder.rollback().await.unwrap();
    };
    let (answer, ()) = tokio::join!(pausing, ending);
    answer.refused(400, "invalid_field", Some("until"));
    assert_eq!(s.count("SELECT count(*) FROM schedule_versions").await, 1);
    s.end_early().await;
}

#[tokio::test]
async fn paused_runs_expire_after_the_window() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"catch_up_window_secs": 3600})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    s.pause(wf).await;
    for (now, state) in [("09:10:00", "queued"), ("10:01:05", "queued"), ("10:01:06", "abandoned")] {
        s.now_is(&format!("2026-03-02T{now}Z")).await;
        s.job("queue").await;
        assert_eq!(s.runs(wf).await, format!("2026-03-02T09:00Z schedule {state}"), "{now}");
    }
    assert_eq!(s.table("SELECT error FROM runs").await, "not_started_in_time");
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z abandoned");
    s.end_early().await;
}

/// In a pause, an accepted run waits for a slot again. It must not expire before the start time that its spread chose.
#[tokio::test]
async fn a_pause_shortens_no_spread() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"catch_up_window_secs": 60, "spread_secs": 3600})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    s.pause(wf).await;
    assert_eq!(start_run(&s, wf, Trigger::Manual, "2026-03-02T08:00:00Z").await, "accepted");
    assert!(s.runs(wf).await.ends_with("2026-03-02T09:00Z schedule queued"), "deferred: {}", s.runs(wf).await);
    s.now_is("2026-03-02T09:30:00Z").await;
    ended(&s, wf).await;
    s.job("queue").await;
    s.resume(wf).await;
    s.job("queue").await;
    assert!(s.runs(wf).await.ends_with("2026-03-02T09:00Z schedule accepted"), "{}", s.runs(wf).await);
    s.end_early().await;
}
