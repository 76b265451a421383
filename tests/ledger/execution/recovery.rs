//! Recovery: a run whose instance died is either retried or abandoned with a reason.

use app::jobs::Did;
use chrono::{DateTime, Utc};
use executor::claim::{self, Finished, Ownership, Slots};
use ledger::runs::RunState;
use local::stack::StackOptions;
use schedule::WorkflowId;
use serde_json::json;
use tests::Story;
use uuid::Uuid;

use crate::receiver::{Receiver, run, until_state};
use crate::steps::timeline;

const NOON: &str = "2026-03-02T12:00:00Z";

/// A stack that executes no runs.
async fn idle() -> Story {
    let now = Some(NOON.parse().unwrap());
    Story::with(StackOptions { now, app: |config| config.executor_slots = 0, ..StackOptions::default() }).await
}

/// Inserts runs of an instance that was killed: running, with the time of their last heartbeat.
async fn left_running(s: &Story, workflow: WorkflowId, runs: i32, last_sign: &str) {
    left_running_by(s, "manual", workflow, runs, last_sign).await;
}

async fn left_running_by(s: &Story, trigger: &str, workflow: WorkflowId, runs: i32, last_sign: &str) {
    let left = "INSERT INTO runs (id, workflow_id, trigger, scheduled_time, state, attempt, run_after, created_on, started_on, locked_by, locked_at, lease_until)
                SELECT gen_random_uuid(), $1, $5, CASE $5 WHEN 'schedule' THEN $2 - make_interval(mins => nth) END, 'running', 1, $2, $2, $2, gen_random_uuid(), $3, $3 + INTERVAL '120 s'
                  FROM generate_series(1, $4) AS nth";
    let last_sign: DateTime<Utc> = last_sign.parse().unwrap();
    let left = sqlx::query(left).bind(workflow.0).bind(s.clock.now()).bind(last_sign).bind(runs);
    let left = left.bind(trigger);
    left.execute(&s.pool).await.unwrap();
}

async fn states(s: &Story) -> String {
    s.table("SELECT state || ' ' || count(*) FROM runs GROUP BY state ORDER BY state").await
}

async fn errors(s: &Story) -> String {
    s.table("SELECT DISTINCT error FROM runs WHERE error IS NOT NULL").await
}

fn all(go_on: u32, abandoned: u32, cancelled: u32) -> Did {
    Did::All(format!("lost runs: {go_on} continue, {abandoned} abandoned, {cancelled} cancelled"))
}

/// The run keeps its id, and its next call says `is_recovery`.
#[tokio::test]
async fn recovery_continues_a_run_after_its_lease() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::kind().await;
    let wf = s.create_with(json!({"action": receiver.action()})).await;
    left_running(&s, wf, 1, "2026-03-02T11:59:00Z").await;
    let id: Uuid = sqlx::query_scalar("SELECT id FROM runs").fetch_one(&s.pool).await.unwrap();
    s.now_is("2026-03-02T12:00:59Z").await;
    assert_eq!(s.job("recovery").await, Did::Nothing, "119 s: it may still live");
    s.now_is("2026-03-02T12:01:00Z").await;
    assert_eq!(s.job("recovery").await, all(1, 0, 0));
    let done = until_state(&s, id, "succeeded").await;
    assert_eq!(done["attempt"], 2);
    assert_eq!(timeline(&s, id).await, ["1 lost 12:01:00 -", "2 succeeded 12:01:00 -"]);
    let call = receiver.calls().remove(0);
    assert_eq!((&call["run_id"], &call["context"]["is_recovery"]), (&json!(id), &json!(true)));
    s.end().await;
}

/// The occurrence gets the reason of its run, and a repeated fire runs nothing.
#[tokio::test]
async fn on_lost_abandon_also_abandons_the_occurrence() {
    let s = idle().await;
    let wf = s.create_with(json!({"cron_schedule": "0 * * * *", "on_lost": "abandon"})).await;
    s.publish().await;
    s.now_is("2026-03-02T13:00:05Z").await;
    assert_eq!(s.invoke(wf, "2026-03-02T13:00:00Z").await.status, 202);
    s.execute(
        "UPDATE runs SET state = 'running', attempt = 1, started_on = run_after, locked_by = gen_random_uuid(),
                         locked_at = '2026-03-02T13:00:05Z'",
    )
    .await;
    s.now_is("2026-03-02T13:02:05Z").await;
    assert_eq!(s.job("recovery").await, all(0, 1, 0));
    assert_eq!(s.runs(wf).await, "2026-03-02T13:00Z schedule abandoned");
    assert_eq!(s.occurrences(wf).await, "2026-03-02T13:00Z abandoned");
    let reason = "instance_lost_on_lost_abandon";
    assert_eq!((errors(&s).await, s.table("SELECT reason FROM occurrences").await), (reason.into(), reason.into()));
    assert_eq!(s.job("recovery").await, Did::Nothing, "never found again");
    let again = s.invoke(wf, "2026-03-02T13:00:00Z").await;
    assert_eq!((again.status, again.body["accepted"].as_bool()), (200, Some(false)), "its time is decided");
    s.end().await;
}

#[tokio::test]
async fn manual_runs_take_no_decision_back() {
    let s = idle().await;
    let wf = s.create_with(json!({"cron_schedule": "0 * * * *", "on_lost": "abandon"})).await;
    s.publish().await;
    s.now_is("2026-03-02T13:00:05Z").await;
    s.invoke(wf, "2026-03-02T13:00:00Z").await;
    s.execute("UPDATE runs SET state = 'succeeded', finished_on = run_after").await;
    left_running(&s, wf, 1, NOON).await;
    s.execute(
        "UPDATE runs SET trigger = 'retry', occurrence_id = (SELECT id FROM occurrences) WHERE state = 'running'",
    )
    .await;
    s.now_is("2026-03-02T13:02:05Z").await;
    assert_eq!(s.job("recovery").await, all(0, 1, 0));
    assert_eq!(s.occurrences(wf).await, "2026-03-02T13:00Z fired");
    s.end().await;
}

#[tokio::test]
async fn a_run_is_abandoned_after_three_recoveries() {
    let s = idle().await;
    let wf = s.create_with(json!({})).await;
    left_running(&s, wf, 1, NOON).await;
    let mut now: DateTime<Utc> = NOON.parse().unwrap();
    for _ in 0..3 {
        now += chrono::TimeDelta::seconds(120);
        s.set_clock(now).await;
        assert_eq!(s.job("recovery").await, all(1, 0, 0));
        // Another instance claims the run and dies.
        let claimed =
            "UPDATE runs SET state = 'running', attempt = attempt + 1, locked_by = gen_random_uuid(), locked_at = $1";
        sqlx::query(claimed).bind(now).execute(&s.pool).await.unwrap();
    }
    s.set_clock(now + chrono::TimeDelta::seconds(120)).await;
    assert_eq!(s.job("recovery").await, all(0, 1, 0));
    assert_eq!(errors(&s).await, "instance_lost_too_often:3");
    s.end().await;
}

#[tokio::test]
async fn a_lost_run_of_yesterday_is_abandoned() {
    let s = idle().await;
    let wf = s.create_with(json!({})).await;
    left_running(&s, wf, 1, NOON).await;
    s.now_is("2026-03-03T12:00:01Z").await;
    assert_eq!(s.job("recovery").await, all(0, 1, 0));
    assert_eq!(errors(&s).await, "instance_lost_too_old:86400");
    s.end().await;
}

#[tokio::test]
async fn lost_runs_of_paused_workflows_only_wait() {
    let s = idle().await;
    let paused = s.create("0 9 * * *", "UTC").await;
    let active = s.create("0 9 * * *", "UTC").await;
    s.pause(paused).await;
    // More runs than one pass processes, and lost for longer.
    left_running_by(&s, "schedule", paused, 150, "2026-03-02T11:00:00Z").await;
    left_running(&s, active, 1, "2026-03-02T11:30:00Z").await;
    assert_eq!(s.job("recovery").await, all(1, 0, 0));
    assert_eq!(states(&s).await, "accepted 1\nrunning 150");
    s.resume(paused).await;
    assert!(matches!(s.job("recovery").await, Did::Some(_)));
    assert_eq!(s.job("recovery").await, all(50, 0, 0));
    s.publish().await;
    s.end_early().await;
}

/// A pause holds automatic runs only. A run that a person has requested would keep the workflow's slot until the resume.
#[tokio::test]
async fn lost_runs_on_request_continue_in_a_pause() {
    let s = idle().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    left_running_by(&s, "schedule", wf, 2, "2026-03-02T11:00:00Z").await;
    left_running(&s, wf, 1, "2026-03-02T11:00:00Z").await;
    s.pause(wf).await;
    assert_eq!(s.job("recovery").await, all(1, 0, 0));
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'accepted' AND trigger = 'manual'").await, 1);
    s.end_early().await;
}

#[tokio::test]
async fn archiving_cancels_a_lost_run() {
    let s = idle().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    left_running(&s, wf, 1, "2026-03-02T11:00:00Z").await;
    s.archive(wf).await;
    assert_eq!(s.job("recovery").await, all(0, 0, 1));
    assert_eq!(errors(&s).await, "instance_lost_after_cancel:workflow_archived");
    s.end().await;
}

#[tokio::test]
async fn concurrent_recoveries_take_each_run_once() {
    let s = idle().await;
    let wf = s.create_with(json!({})).await;
    left_running(&s, wf, 80, "2026-03-02T11:00:00Z").await;
    futures::future::join_all((0..8).map(|_| s.job("recovery"))).await;
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'accepted' AND recoveries = 1").await, 80);
    s.end_early().await;
}

/// Both begin at the same moment, in 200 rounds.
#[tokio::test]
async fn one_of_recovery_and_completion_wins() {
    let s = idle().await;
    let wf = s.create_with(json!({})).await;
    let lease = claim::Lease { instance: Uuid::new_v4(), secs: 120.0 };
    for _ in 0..200 {
        sqlx::query("DELETE FROM runs").execute(&s.pool).await.unwrap();
        crate::receiver::accept(&s, wf).await;
        let mut db = s.pool.acquire().await.unwrap();
        let slots = Slots::all_free(1);
        let claimed = claim::claim_due_runs(&mut db, lease, &slots, &[], s.clock.now()).await.unwrap().remove(0);
        s.execute("UPDATE runs SET lease_until = lease_until - INTERVAL '10 minutes'").await;
        let finished = Finished { state: RunState::Succeeded, result: None, error: None, failed_tries: 0 };
        let (finish, recovery) = tokio::join!(
            claim::finish_run(&mut db, lease.instance, claimed.fence(), &finished, s.clock.now()),
            s.job("recovery")
        );
        let run = run(&s, claimed.id).await;
        match (finish.unwrap(), recovery) {
            (Ownership::Ours, Did::Nothing) => assert_eq!(run["state"], "succeeded"),
            (Ownership::Lost, Did::All(_)) => assert_eq!(run["state"], "accepted"),
            both => panic!("both or neither: {both:?} {run}"),
        }
    }
    s.execute("UPDATE runs SET state = 'cancelled', finished_on = run_after WHERE finished_on IS NULL").await;
    s.end().await;
}
