//! Fires that wait: behind a run that has not started, behind others after an outage, and behind a retry.

use futures::future::join_all;
use ledger::invoke::{Answer, FireDecider};
use schedule::{Fire, WorkflowId};
use serde_json::json;
use tests::Story;

use crate::receiver::{NOON, Receiver};
use crate::steps::{claimed, ended, fire, fire_on_time, hourly, story_without_executor};

/// The times with a run, and the skipped times, for example `09:00 09:02, skipped 09:01`.
async fn times(s: &Story, wf: WorkflowId) -> String {
    let (mut ran, mut skipped) = (Vec::new(), Vec::new());
    for line in s.occurrences(wf).await.lines() {
        let is_run = ["fired", "caught_up"].contains(&&line[18..]);
        if is_run { &mut ran } else { &mut skipped }.push(line[11..16].to_owned());
    }
    format!("{}, skipped {}", ran.join(" "), skipped.join(" "))
}

#[tokio::test]
async fn a_fire_waits_for_an_unstarted_predecessor() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await, "accepted");
    assert_eq!(s.runs(wf).await, "2026-03-02T09:00Z schedule accepted\n2026-03-02T10:00Z schedule queued");
    claimed(&s, wf).await;
    ended(&s, wf).await;
    assert_eq!(s.runs(wf).await, "2026-03-02T09:00Z schedule succeeded\n2026-03-02T10:00Z schedule accepted");
    assert_eq!(times(&s, wf).await, "09:00 10:00, skipped ");
    s.end_early().await;
}

#[tokio::test]
async fn the_newest_fire_replaces_the_waiting_one() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    for hour in ["09", "10", "11"] {
        assert_eq!(fire_on_time(&s, wf, &format!("2026-03-02T{hour}:00:00Z")).await, "accepted");
    }
    assert_eq!(
        s.runs(wf).await,
        "2026-03-02T09:00Z schedule accepted\n2026-03-02T10:00Z schedule cancelled\n2026-03-02T11:00Z schedule queued"
    );
    assert_eq!(times(&s, wf).await, "09:00 11:00, skipped 10:00");
    let reason = "SELECT decision || ' ' || reason FROM occurrences WHERE reason IS NOT NULL";
    assert_eq!(s.table(reason).await, "skipped_overlap predecessor_not_started");
    assert_eq!(fire(&s, wf, "2026-03-02T10:00:00Z").await, "overlap", "and the decision is repeated");
    // The predecessor runs now, and the next fire replaces the one that waits.
    claimed(&s, wf).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T12:00:00Z").await, "accepted");
    assert_eq!(times(&s, wf).await, "09:00 12:00, skipped 10:00 11:00");
    ended(&s, wf).await;
    assert!(s.runs(wf).await.ends_with("2026-03-02T12:00Z schedule accepted"));
    s.now_is("2026-03-02T12:30:00Z").await;
    s.job("watchdog").await;
    let verified = s.admin().get("/api/v1/verify?from=2026-03-02T08:31:00Z&to=2026-03-02T12:20:00Z").await.expect(200);
    assert_eq!(verified.json["differences"], json!([]), "{}", verified.text);
    s.end_early().await;
}

/// Another instance has the replaced run in its cache, and answers with it. That starts no run, either (docs/cron.md).
#[tokio::test]
async fn no_instance_runs_a_replaced_fire() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    for hour in ["09", "10"] {
        assert_eq!(fire_on_time(&s, wf, &format!("2026-03-02T{hour}:00:00Z")).await, "accepted");
    }
    let ten = "2026-03-02T10:00:00Z";
    let repeated = Fire::from_event(&json!({"workflow_id": wf.0, "scheduled_time": ten})).unwrap();
    let other = FireDecider::new(s.pool.clone(), s.app().config.ledger_kept());
    let known = other.decide_fire(&repeated).await.unwrap();
    assert!(matches!(known, Answer::Duplicate(_)), "{known:?}");
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T11:00:00Z").await, "accepted", "it takes the place of ten o'clock");
    assert_eq!(fire(&s, wf, ten).await, "overlap", "the instance that replaced it");
    assert_eq!(other.decide_fire(&repeated).await.unwrap(), known, "the other one");
    assert_eq!(
        s.runs(wf).await,
        "2026-03-02T09:00Z schedule accepted\n2026-03-02T10:00Z schedule cancelled\n2026-03-02T11:00Z schedule queued"
    );
    assert_eq!(times(&s, wf).await, "09:00 11:00, skipped 10:00");
    s.end_early().await;
}

#[tokio::test]
async fn an_older_fire_never_replaces_a_newer() {
    let s = story_without_executor("2026-03-02T08:59:30Z").await;
    let wf = s.create_with(json!({"cron_schedule": "* * * * *"})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:02:00Z").await, "accepted");
    assert_eq!(fire(&s, wf, "2026-03-02T09:01:00Z").await, "overlap");
    assert_eq!(times(&s, wf).await, "09:00 09:02, skipped 09:01");
    s.end_early().await;
}

#[tokio::test]
async fn fires_behind_a_started_run_are_skipped() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    claimed(&s, wf).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await, "overlap");
    let reason = "SELECT reason FROM occurrences WHERE reason IS NOT NULL";
    assert_eq!(s.table(reason).await, "previous_run_not_ended");
    let skipped = format!("/api/v1/schedules/{wf}/occurrences?decision=skipped_overlap");
    let skipped = s.editor().get(&skipped).await.expect(200).json;
    let skipped = &skipped["items"][0];
    assert_eq!(skipped["reason_code"], "previous_run_not_ended");
    assert_eq!(skipped["reason"], "the run before it has not ended", "for one version");
    s.end_early().await;
}

#[tokio::test]
async fn a_run_between_tries_keeps_its_slot() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::answering(&[(503, "3600")]).await;
    let wf =
        s.create_with(json!({"cron_schedule": "*/30 * * * *", "action": receiver.action(), "max_attempts": 5})).await;
    assert_eq!(fire(&s, wf, NOON).await, "accepted");
    receiver.until(1).await;
    s.until("SELECT count(*) FROM runs WHERE state = 'accepted' AND tries = 1", 1).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T12:30:00Z").await, "overlap");
    s.now_is("2026-03-02T13:00:00Z").await;
    receiver.until(2).await;
    s.runs_end().await;
    assert_eq!(times(&s, wf).await, "12:00, skipped 12:30");
    s.end().await;
}

const MINUTES: [&str; 3] = ["2026-03-02T09:00:00Z", "2026-03-02T09:01:00Z", "2026-03-02T09:02:00Z"];
const ORDERS: [[usize; 3]; 4] = [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]];

async fn run_all(s: &Story) -> WorkflowId {
    s.create_with(json!({"cron_schedule": "* * * * *", "catch_up_policy": "run_all"})).await
}

#[tokio::test]
async fn run_all_never_skips_retried_fires() {
    let s = story_without_executor("2026-03-02T08:59:30Z").await;
    s.now_is("2026-03-02T08:59:40Z").await;
    let mut workflows = Vec::new();
    for _ in ORDERS {
        workflows.push((run_all(&s).await, run_all(&s).await));
    }
    let together = run_all(&s).await;
    // Within the grace, in every order; of each pair, an executor takes the runs of the second workflow in between.
    s.now_is("2026-03-02T09:02:10Z").await;
    for (order, (waits, runs)) in ORDERS.iter().zip(&workflows) {
        for nth in order {
            assert_eq!(fire(&s, *waits, MINUTES[*nth]).await, "accepted", "{order:?}");
            assert_eq!(fire(&s, *runs, MINUTES[*nth]).await, "accepted", "{order:?}, taken");
            claimed(&s, *runs).await;
        }
    }
    let answers = join_all(MINUTES.map(|time| fire(&s, together, time))).await;
    assert_eq!(answers, ["accepted"; 3]);
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state <> 'cancelled'").await, 27);
    assert_eq!(s.count("SELECT count(*) FROM occurrences WHERE decision = 'fired'").await, 27);
    s.end_early().await;
}

#[tokio::test]
async fn late_fires_and_the_watchdog_decide_alike() {
    let s = story_without_executor("2026-03-02T08:59:30Z").await;
    for overlap in ["skip", "queue_one", "replace", "concurrent"] {
        for catch_up in ["none", "skip", "run_all"] {
            let policies = json!({"cron_schedule": "0-2 9 * * *", "catch_up_policy": catch_up, "overlap_policy": overlap,
                                  "max_concurrent": 1});
            let (fired, watched) = (s.create_with(policies.clone()).await, s.create_with(policies).await);
            s.now_is("2026-03-02T09:20:00Z").await;
            for time in MINUTES {
                fire(&s, fired, time).await;
            }
            s.job("watchdog").await;
            let (by_fires, by_watchdog) = (times(&s, fired).await, times(&s, watched).await);
            assert_eq!(by_fires, by_watchdog, "overlap {overlap}, catch-up {catch_up}");
            s.now_is("2026-03-02T08:59:30Z").await;
        }
    }
    s.end_early().await;
}

#[tokio::test]
async fn late_fires_wait_for_a_live_run() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    claimed(&s, wf).await;
    // The watchdog would queue the run, so the fire does, too.
    s.now_is("2026-03-02T10:20:00Z").await;
    assert_eq!(fire(&s, wf, "2026-03-02T10:00:00Z").await, "accepted");
    ended(&s, wf).await;
    assert_eq!(s.runs(wf).await, "2026-03-02T09:00Z schedule succeeded\n2026-03-02T10:00Z catch_up accepted");
    s.end_early().await;
}
