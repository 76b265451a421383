//! Executors are shared between teams: no team takes all slots, and a fire that finds no free slot keeps its time.

use clap::Parser as _;
use executor::claim::{Lease, Slots, claim_due_runs};
use futures::future::join_all;
use local::stack::StackOptions;
use reqwest::Method;
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::Story;

use crate::receiver::{NOON, Receiver, until_state};
use crate::steps::{fire, fire_on_time, story_without_executor};

/// A workflow of another team that fires every minute.
async fn of_another_team(s: &Story, action: Value) -> WorkflowId {
    let name = uuid::Uuid::new_v4();
    let team = s.admin().post("/api/v1/teams", &json!({"name": name})).await.expect(201).id();
    let body = json!({"team_id": team, "name": "theirs", "cron_schedule": "* * * * *", "action": action});
    WorkflowId(s.admin().post("/api/v1/workflows", &body).await.expect(201).id())
}

async fn fire_manually(s: &Story, wf: WorkflowId) -> uuid::Uuid {
    let requested = s.admin().request(Method::POST, &format!("/api/v1/schedules/{wf}:fire"));
    let requested = tests::send_request(requested).await.expect(202);
    requested.json["run_id"].as_str().unwrap().parse().unwrap()
}

async fn story(slots: fn(&mut app::Config)) -> Story {
    Story::with(StackOptions { now: Some(NOON.parse().unwrap()), app: slots, ..StackOptions::default() }).await
}

/// One team starts 300 runs that do not end. They take three quarters of the slots.
#[tokio::test]
async fn slow_runs_stop_no_other_team() {
    let s = story(|config| config.executor_slots = 256).await;
    let (slow, kind) = (Receiver::slow().await, Receiver::kind().await);
    for _ in 0..3 {
        let policies = json!({"overlap_policy": "concurrent", "max_concurrent": 100, "action": slow.action()});
        let greedy = s.create_with(policies).await;
        for _ in 0..100 {
            fire_manually(&s, greedy).await;
        }
    }
    slow.until(192).await;
    let theirs = of_another_team(&s, kind.action()).await;
    let run = fire_manually(&s, theirs).await;
    kind.until(1).await;
    assert_eq!(slow.received().len(), 192, "three quarters of 256 slots, and not one of them has ended");
    s.until("SELECT count(*) FROM runs WHERE state = 'succeeded'", 1).await;
    let listed = s.admin().get(&format!("/api/v1/runs/{run}")).await.expect(200);
    assert_eq!(listed.json["state"], "succeeded");
    slow.let_answer(300);
    s.end().await;
    assert_eq!(slow.received().len(), 300, "those behind the limit run as slots become free");
}

#[derive(clap::Parser)]
struct Settings {
    #[command(flatten)]
    config: app::Config,
}

#[test]
fn a_team_takes_three_quarters_by_default() {
    let Settings { config } = Settings::parse_from(["app", "--database-url", "unused"]);
    assert_eq!((config.executor_slots, config.slots_of_a_team()), (1_000, 750));
}

#[tokio::test]
async fn a_single_team_keeps_to_its_share() {
    let s = story(|config| (config.executor_slots, config.executor_team_percent) = (10, 50)).await;
    let (slow, kind) = (Receiver::slow().await, Receiver::kind().await);
    let policies = json!({"overlap_policy": "concurrent", "max_concurrent": 100, "action": slow.action()});
    let greedy = s.create_with(policies).await;
    for _ in 0..20 {
        fire_manually(&s, greedy).await;
    }
    slow.until(5).await;
    let theirs = of_another_team(&s, kind.action()).await;
    for nth in 1..=3 {
        fire_manually(&s, theirs).await;
        kind.until(nth).await;
        s.until("SELECT count(*) FROM runs WHERE state = 'running'", 5).await;
    }
    assert_eq!(slow.received().len(), 5);
    slow.let_answer(20);
    s.end().await;
}

/// More fires of one team arrive together than its share permits. Those that start without a claim keep to the share, too.
#[tokio::test]
async fn fires_keep_to_their_teams_share() {
    let s = story(|config| (config.executor_slots, config.executor_team_percent) = (20, 50)).await;
    let (slow, kind) = (Receiver::slow().await, Receiver::kind().await);
    let mut flood = Vec::new();
    for _ in 0..15 {
        flood.push(s.create_with(json!({"cron_schedule": "* * * * *", "action": slow.action()})).await);
    }
    let answers = join_all(flood.iter().map(|wf| fire(&s, *wf, NOON))).await;
    assert!(answers.iter().all(|answer| answer == "accepted"), "{answers:?}");
    slow.until(10).await;
    let theirs = of_another_team(&s, kind.action()).await;
    assert_eq!(fire(&s, theirs, NOON).await, "accepted");
    kind.until(1).await;
    s.until("SELECT count(*) FROM runs WHERE state = 'succeeded'", 1).await;
    assert_eq!(slow.received().len(), 10, "half of the slots, and not one of them has ended");
    slow.let_answer(15);
    s.end().await;
    assert_eq!(slow.received().len(), 15, "those behind the limit run as slots become free");
}

/// Two teams fill the slots of an instance with runs that do not end. A third team still starts at once.
#[tokio::test]
async fn newcomers_find_a_slot() {
    let s = story(|config| config.executor_slots = 20).await;
    let (slow, kind) = (Receiver::slow().await, Receiver::kind().await);
    let policies = json!({"overlap_policy": "concurrent", "max_concurrent": 100, "action": slow.action()});
    let first = s.create_with(policies.clone()).await;
    for _ in 0..30 {
        fire_manually(&s, first).await;
    }
    slow.until(15).await;
    let second = of_another_team(&s, slow.action()).await;
    s.admin().merge_patch(&format!("/api/v1/workflows/{second}"), &policies).await.expect(200);
    for _ in 0..30 {
        fire_manually(&s, second).await;
    }
    slow.until(19).await;
    let third = of_another_team(&s, kind.action()).await;
    for nth in 1..=3 {
        fire_manually(&s, third).await;
        kind.until(nth).await;
        s.until("SELECT count(*) FROM runs WHERE state = 'running'", 19).await;
    }
    assert_eq!(slow.received().len(), 19, "15 and 4; the last slot is for a team that uses none");
    slow.let_answer(60);
    s.end().await;
}

/// Sets how many runs of the story's team all instances execute at once.
async fn limit_running_runs(s: &Story, limit: i64) {
    let path = format!("/api/v1/teams/{}/limits", s.keys.team_id);
    let set = s.admin().request(Method::PUT, &path).json(&json!({"running_runs": limit}));
    tests::send_request(set).await.expect(200);
}

/// The workflows of the runs that a further instance claims; it has the operator's limit for a team.
async fn claim_elsewhere(s: &Story, running_of_a_team: i64) -> Vec<i64> {
    let lease = Lease { instance: uuid::Uuid::new_v4(), secs: 120.0 };
    let slots = Slots { running_of_a_team, ..Slots::all_free(100) };
    let mut db = s.pool.acquire().await.unwrap();
    let claimed = claim_due_runs(&mut db, lease, &slots, &[], s.clock.now()).await.unwrap();
    let mut workflows: Vec<_> = claimed.iter().map(|run| run.workflow_id).collect();
    workflows.sort_unstable();
    workflows
}

/// Each claim is one of a further instance. A lost run, whose lease has ended, takes nothing of the limit.
#[tokio::test]
async fn running_runs_are_limited_everywhere() {
    let s = story_without_executor(NOON).await;
    let busy = s.create_with(json!({"overlap_policy": "concurrent", "max_concurrent": 100})).await;
    for _ in 0..7 {
        fire_manually(&s, busy).await;
    }
    let theirs = of_another_team(&s, json!({"type": "log", "message": "hi"})).await;
    fire_manually(&s, theirs).await;
    assert_eq!(claim_elsewhere(&s, 2).await, [busy.0, busy.0, theirs.0]);
    assert!(claim_elsewhere(&s, 2).await.is_empty(), "the team has its limit");
    limit_running_runs(&s, 3).await;
    assert_eq!(claim_elsewhere(&s, 2).await, [busy.0], "the admin's limit");
    s.now_is("2026-03-02T12:03:00Z").await;
    assert_eq!(claim_elsewhere(&s, 2).await, [busy.0; 3], "three are lost, so three may start");
    limit_running_runs(&s, 0).await;
    assert_eq!(claim_elsewhere(&s, 2).await, [busy.0], "0 is no limit");
    s.end_early().await;
}

/// What is above the limit waits for an end, and nothing of another team does.
#[tokio::test]
async fn runs_above_their_limit_wait() {
    let s = story(|config| config.team_running_runs = 2).await;
    let (slow, kind) = (Receiver::slow().await, Receiver::kind().await);
    let policies = json!({"overlap_policy": "concurrent", "max_concurrent": 100, "action": slow.action()});
    let busy = s.create_with(policies).await;
    for _ in 0..5 {
        fire_manually(&s, busy).await;
    }
    slow.until(2).await;
    let theirs = of_another_team(&s, kind.action()).await;
    for nth in 1..=3 {
        fire_manually(&s, theirs).await;
        kind.until(nth).await;
        s.until("SELECT count(*) FROM runs WHERE state = 'running'", 2).await;
    }
    assert_eq!(slow.received().len(), 2);
    let limits = s.editor().get(&format!("/api/v1/teams/{}/limits", s.keys.team_id)).await.expect(200).json;
    assert_eq!((&limits["in_force"]["running_runs"], &limits["usage"]["running_runs"]), (&json!(2), &json!(2)));
    slow.let_answer(1);
    slow.until(3).await;
    s.until("SELECT count(*) FROM runs WHERE state = 'running'", 2).await;
    slow.let_answer(4);
    s.end().await;
    assert_eq!(slow.received().len(), 5);
}

/// Ten runs of one workflow are older than the run of another one of the same team.
#[tokio::test]
async fn claims_are_fair_by_workflow() {
    let s = story_without_executor(NOON).await;
    let busy = s.create_with(json!({"overlap_policy": "concurrent", "max_concurrent": 100})).await;
    for _ in 0..10 {
        fire_manually(&s, busy).await;
    }
    s.now_is("2026-03-02T12:00:10Z").await;
    let other = s.create_with(json!({})).await;
    fire_manually(&s, other).await;
    let lease = Lease { instance: uuid::Uuid::new_v4(), secs: 120.0 };
    let slots = Slots { most: 2, ..Slots::all_free(10) };
    let mut db = s.pool.acquire().await.unwrap();
    let claimed = claim_due_runs(&mut db, lease, &slots, &[], s.clock.now()).await.unwrap();
    drop(db);
    let mut workflows: Vec<_> = claimed.iter().map(|run| run.workflow_id).collect();
    workflows.sort_unstable();
    assert_eq!(workflows, [busy.0, other.0]);
    s.end_early().await;
}

/// Running runs whose lease a heartbeat has renewed at this time of the clock.
const RENEWED: &str = "SELECT count(*) FROM runs
                        WHERE state = 'running' AND lease_until >= cronbox_now() + INTERVAL '120 seconds'";

/// Runs whose documents take more than half a mebibyte of memory each: a number takes sixteen times its text.
fn large_runs(receiver: &Receiver) -> Value {
    let inputs = json!({"text": "x".repeat(225_000), "numbers": vec![0; 9_900]});
    json!({"overlap_policy": "concurrent", "max_concurrent": 10, "action": receiver.action(), "starting_inputs": inputs})
}

/// The documents of the running runs are as large as the instance may hold of a team: further runs wait for them.
#[tokio::test]
async fn large_inputs_use_up_the_memory() {
    let s = story(|config| (config.executor_mebibytes, config.heartbeat_ms) = (1, 50)).await;
    let slow = Receiver::slow().await;
    let large = s.create_with(large_runs(&slow)).await;
    for nth in 1..=2 {
        fire_manually(&s, large).await;
        slow.until(nth).await;
    }
    let third = fire_manually(&s, large).await;
    for secs in 1..=5 {
        s.now_is(&format!("2026-03-02T12:00:0{secs}Z")).await;
        s.until(RENEWED, 2).await;
    }
    assert_eq!(slow.received().len(), 2, "five heartbeats later, the third one still waits");
    slow.let_answer(1);
    slow.until(3).await;
    slow.let_answer(2);
    until_state(&s, third, "succeeded").await;
    s.end().await;
}

/// The documents of one team's runs, which do not end, are larger than the memory of the instance. Another team's fire and
/// its manual run start at once.
#[tokio::test]
async fn large_inputs_of_one_team_leave_memory_to_others() {
    let s = story(|config| config.executor_mebibytes = 1).await;
    let (slow, kind) = (Receiver::slow().await, Receiver::kind().await);
    let large = s.create_with(large_runs(&slow)).await;
    for nth in 1..=2 {
        fire_manually(&s, large).await;
        slow.until(nth).await;
    }
    let third = fire_manually(&s, large).await;
    let theirs = of_another_team(&s, kind.action()).await;
    assert_eq!(fire(&s, theirs, NOON).await, "accepted");
    kind.until(1).await;
    s.until("SELECT count(*) FROM runs WHERE state = 'succeeded'", 1).await;
    fire_manually(&s, theirs).await;
    kind.until(2).await;
    assert_eq!(slow.received().len(), 2, "neither of the large ones has ended");
    slow.let_answer(3);
    until_state(&s, third, "succeeded").await;
    s.end().await;
}

#[tokio::test]
async fn fires_without_a_free_slot_are_kept() {
    let s = story(|config| config.executor_slots = 1).await;
    let (slow, kind) = (Receiver::slow().await, Receiver::kind().await);
    let greedy = s.create_with(json!({"action": slow.action()})).await;
    let greedy = fire_manually(&s, greedy).await;
    slow.until(1).await;
    let wf = of_another_team(&s, kind.action()).await;
    assert_eq!(fire(&s, wf, NOON).await, "accepted");
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T12:01:00Z").await, "accepted");
    assert_eq!(kind.received().len(), 0);
    slow.let_answer(1);
    until_state(&s, greedy, "succeeded").await;
    kind.until(2).await;
    let times: Vec<_> = kind.calls().iter().map(|call| call["scheduled_time"].clone()).collect();
    assert_eq!(times, [NOON, "2026-03-02T12:01:00Z"]);
    assert_eq!(s.count("SELECT count(*) FROM occurrences WHERE decision = 'fired'").await, 2);
    s.end().await;
}
