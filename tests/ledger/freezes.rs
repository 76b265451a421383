//! A freeze stops the schedules of a team, or of all teams: each time of it is decided, and none runs.

use app::jobs::Did;
use ledger::runs::Trigger;
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::Story;

use crate::backfills::requests::finished_backfill;
use crate::catch_up::watchdog_races::{WAITING, lock_workflow};
use crate::steps::{claimed, ended, fire, fire_on_time, hourly, start_run, story_without_executor};
use crate::verify::due_times::{differences, settle, verify};

/// Freezes the team of the story, or all teams.
async fn freeze(s: &Story, fields: Value) -> Value {
    let caller = if fields["all_teams"] == true { s.admin() } else { s.editor() };
    caller.post("/api/v1/freezes", &fields).await.expect(201).json
}

async fn lift(s: &Story, freeze: &Value) {
    let path = format!("/api/v1/freezes/{}:lift", freeze["id"].as_str().unwrap());
    s.editor().post_empty(&path).await.expect(200);
}

/// A workflow of another team.
pub(crate) async fn of_another_team(s: &Story) -> WorkflowId {
    let team = s.admin().post("/api/v1/teams", &json!({"name": "others"})).await.expect(201).id();
    let body = json!({"name": "theirs", "team_id": team, "cron_schedule": "0 * * * *", "timezone": "UTC",
                      "action": {"type": "log", "message": "m"}});
    WorkflowId(s.admin().post("/api/v1/workflows", &body).await.expect(201).id())
}

/// The watchdog comes first for 10:00, and a fire for 09:00; both decide alike.
#[tokio::test]
async fn the_times_of_a_freeze_are_skipped_with_its_reason() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"catch_up_policy": "run_all"})).await;
    let theirs = of_another_team(&s).await;
    freeze(&s, json!({"reason": "Black Friday: no jobs", "until": "2026-03-02T12:00:00Z"})).await;

    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "paused");
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "paused", "and again");
    assert_eq!(fire_on_time(&s, theirs, "2026-03-02T09:00:00Z").await, "accepted", "another team");
    s.now_is("2026-03-02T12:00:10Z").await;
    s.job("watchdog").await;
    assert_eq!(fire(&s, wf, "2026-03-02T11:00:00Z").await, "paused", "a late fire, after the freeze");
    assert_eq!(fire(&s, wf, "2026-03-02T12:00:00Z").await, "accepted", "its end is exclusive");

    let decisions = "2026-03-02T09:00Z skipped_paused\n2026-03-02T10:00Z skipped_paused\n\
                     2026-03-02T11:00Z skipped_paused\n2026-03-02T12:00Z fired";
    assert_eq!(s.occurrences(wf).await, decisions);
    let path = format!("/api/v1/schedules/{wf}/occurrences?decision=skipped_paused");
    for occurrence in s.editor().get(&path).await.expect(200).json["items"].as_array().unwrap() {
        assert_eq!(occurrence["reason"], "the schedules were frozen: Black Friday: no jobs", "{occurrence}");
        assert_eq!(occurrence["reason_code"], "frozen", "{occurrence}");
    }
    assert_eq!(s.workflow(wf).await["state"], "active", "each workflow keeps its own state");
    s.now_is("2026-03-02T12:30:00Z").await;
    s.job("watchdog").await;
    let found = verify(&s, "from=2026-03-02T08:30:00Z&to=2026-03-02T12:01:00Z").await.expect(200);
    assert_eq!(differences(&found), Vec::<String>::new());
    s.end_early().await;
}

/// Neither the fire nor the watchdog runs what a freeze has touched.
#[tokio::test]
async fn a_time_that_was_undecided_in_a_freeze_does_not_run_after_it() {
    let s = story_without_executor("2026-03-02T08:59:00Z").await;
    let by_fire = hourly(&s, json!({"catch_up_policy": "run_all"})).await;
    let by_late_fire = hourly(&s, json!({"catch_up_policy": "run_all"})).await;
    let by_watchdog = hourly(&s, json!({"catch_up_policy": "run_all"})).await;
    s.now_is("2026-03-02T09:01:00Z").await;
    let frozen = freeze(&s, json!({"reason": "incident"})).await;
    s.now_is("2026-03-02T09:02:00Z").await;
    lift(&s, &frozen).await;
    s.now_is("2026-03-02T09:03:00Z").await;
    assert_eq!(fire(&s, by_fire, "2026-03-02T09:00:00Z").await, "paused");
    s.now_is("2026-03-02T09:10:00Z").await;
    assert_eq!(fire(&s, by_late_fire, "2026-03-02T09:00:00Z").await, "paused");
    s.job("watchdog").await;
    for wf in [by_fire, by_late_fire, by_watchdog] {
        assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z skipped_paused", "{wf}");
    }
    assert_eq!(fire_on_time(&s, by_fire, "2026-03-02T10:00:00Z").await, "accepted");
    s.end_early().await;
}

/// A batch reads the freezes only if one may concern its fires, which are up to five minutes late or early.
#[tokio::test]
async fn a_fire_on_time_sees_a_freeze_that_has_ended_or_ends_before_its_time() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    s.now_is("2026-03-02T09:01:00Z").await;
    let ended = freeze(&s, json!({"reason": "ends before a late fire"})).await;
    s.now_is("2026-03-02T09:02:00Z").await;
    lift(&s, &ended).await;
    s.now_is("2026-03-02T09:04:00Z").await;
    assert_eq!(
        fire(&s, wf, "2026-03-02T09:00:00Z").await,
        "paused",
        "it was due before the freeze, and is decided after it"
    );

    s.now_is("2026-03-02T09:56:00Z").await;
    freeze(&s, json!({"reason": "ends after an early fire", "until": "2026-03-02T09:58:00Z"})).await;
    assert_eq!(fire(&s, wf, "2026-03-02T10:00:00Z").await, "accepted", "it is decided in the freeze, and due after it");
    s.end_early().await;
}

/// EventBridge may fire a moment early by our clock. Each case is decided in a batch, and alone.
#[tokio::test]
async fn an_early_fire_is_frozen_by_its_time() {
    for is_alone in [false, true] {
        let s = Story::at("2026-03-02T08:30:00Z").await;
        let wf = hourly(&s, json!({"overlap_policy": "concurrent"})).await;
        let manual = s.create_with(json!({})).await;
        let until_manual = async |succeeded: i64| {
            s.editor().post_empty(&format!("/api/v1/schedules/{manual}:fire")).await.expect(202);
            s.until("SELECT count(*) FROM runs WHERE trigger = 'manual' AND state = 'succeeded'", succeeded).await;
        };
        // An executor that has claimed a run offers its slots to fires.
        until_manual(1).await;
        let fire = async |time: &str| {
            if !is_alone {
                return fire(&s, wf, time).await;
            }
            // A fire whose workflow is locked leaves its batch and waits for the lock.
            let holder = lock_workflow(&s, wf).await;
            let release = async {
                s.until(WAITING, 1).await;
                holder.rollback().await.unwrap();
            };
            tokio::join!(fire(&s, wf, time), release).0
        };
        freeze(&s, json!({"reason": "ends", "until": "2026-03-02T09:00:00Z"})).await;
        freeze(&s, json!({"reason": "begins", "from": "2026-03-02T10:00:00Z", "until": "2026-03-02T10:30:00Z"})).await;
        s.now_is("2026-03-02T08:59:59Z").await;
        assert_eq!(fire("2026-03-02T09:00:00Z").await, "accepted", "the end is exclusive");
        // The claim of this run, which a person requested, would have taken that one, too.
        until_manual(2).await;
        let states = "SELECT string_agg(state, ', ') FROM runs WHERE trigger = 'schedule'";
        assert_eq!(s.table(states).await, "accepted", "it starts when the freeze has ended");
        s.now_is("2026-03-02T09:00:00Z").await;
        s.until("SELECT count(*) FROM runs WHERE trigger = 'schedule' AND state = 'succeeded'", 1).await;

        s.now_is("2026-03-02T09:59:59Z").await;
        assert_eq!(fire("2026-03-02T10:00:00Z").await, "paused", "it is due in the freeze, and decided before it");
        s.now_is("2026-03-02T12:30:00Z").await;
        s.job("watchdog").await;
        let found = verify(&s, "from=2026-03-02T08:30:00Z&to=2026-03-02T10:01:00Z").await.expect(200);
        assert_eq!(differences(&found), Vec::<String>::new());
        s.end_early().await;
    }
}

/// A freeze may hold a run that was accepted early for longer than its catch-up window, which does not end before its time.
#[tokio::test]
async fn an_early_fire_does_not_expire_before_its_time() {
    for is_alone in [false, true] {
        let s = story_without_executor("2026-03-02T08:30:00Z").await;
        let wf = hourly(&s, json!({"catch_up_window_secs": 60})).await;
        freeze(&s, json!({"reason": "ends", "until": "2026-03-02T09:00:00Z"})).await;
        s.now_is("2026-03-02T08:56:00Z").await;
        let holder = if is_alone { Some(lock_workflow(&s, wf).await) } else { None };
        let release = async {
            if let Some(holder) = holder {
                s.until(WAITING, 1).await;
                holder.rollback().await.unwrap();
            }
        };
        assert_eq!(tokio::join!(fire(&s, wf, "2026-03-02T09:00:00Z"), release).0, "accepted");
        for now in ["2026-03-02T08:58:00Z", "2026-03-02T09:00:30Z"] {
            s.now_is(now).await;
            assert_eq!(s.job("queue").await, Did::Nothing, "{now}");
        }
        claimed(&s, wf).await;
        assert_eq!(s.table("SELECT state FROM runs").await, "running");
        s.end_early().await;
    }
}

/// The same of one that is queued, here because a manual run needed its slot.
#[tokio::test]
async fn an_early_fire_that_is_queued_does_not_expire_before_its_time() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"catch_up_window_secs": 60})).await;
    freeze(&s, json!({"reason": "ends", "until": "2026-03-02T09:00:00Z"})).await;
    s.now_is("2026-03-02T08:56:00Z").await;
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    s.editor().post_empty(&format!("/api/v1/schedules/{wf}:fire")).await.expect(202);
    ended(&s, wf).await;
    let states = "SELECT string_agg(trigger || ' ' || state, ', ' ORDER BY trigger) FROM runs";
    assert_eq!(s.table(states).await, "manual succeeded, schedule queued");
    s.now_is("2026-03-02T08:59:00Z").await;
    assert_eq!(s.job("queue").await, Did::Nothing, "its time has not come");
    s.now_is("2026-03-02T09:00:10Z").await;
    s.job("queue").await;
    claimed(&s, wf).await;
    assert_eq!(s.table(states).await, "manual succeeded, schedule running");
    s.end_early().await;
}

/// Until the commit of a lift, fires are decided by the freeze. So its end is not the time of the request.
#[tokio::test]
async fn a_lift_that_waits_ends_the_freeze_later() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let frozen = freeze(&s, json!({"reason": "incident"})).await;
    s.now_is("2026-03-02T08:59:58Z").await;
    let mut holder = db::begin_transaction(&s.pool).await.unwrap();
    sqlx::query("SELECT FROM freezes FOR UPDATE").execute(&mut *holder).await.unwrap();
    let release = async {
        s.until(WAITING, 1).await;
        s.now_is("2026-03-02T09:00:03Z").await;
        holder.rollback().await.unwrap();
    };
    tokio::join!(lift(&s, &frozen), release);
    let ended = "SELECT count(*) FROM freezes WHERE ends_on = '2026-03-02T09:00:03Z' AND lifted_on = ends_on";
    assert_eq!(s.count(ended).await, 1, "09:00 was decided by it");
    s.end_early().await;
}

/// The watchdog decides workflow by workflow what it cannot decide together: here a backlog of 300 times.
#[tokio::test]
async fn a_long_backlog_is_frozen_alike() {
    let s = story_without_executor("2026-03-02T08:00:30Z").await;
    let fields = json!({"cron_schedule": "* * * * *", "catch_up_policy": "run_all", "catch_up_window_secs": 86_400});
    s.create_with(fields).await;
    s.now_is("2026-03-02T10:00:30Z").await;
    let frozen = freeze(&s, json!({"reason": "incident"})).await;
    s.now_is("2026-03-02T13:00:30Z").await;
    lift(&s, &frozen).await;
    s.job("watchdog").await;
    let by_reason = "SELECT string_agg(DISTINCT decision || ' ' || reason, ', ') FROM occurrences";
    assert_eq!(s.table(by_reason).await, "skipped_paused frozen:incident");
    assert_eq!(s.count("SELECT count(*) FROM occurrences").await, 295, "all that are not on time any more");
    s.end_early().await;
}

#[tokio::test]
async fn a_freeze_of_all_teams_stops_each_of_them_until_it_is_lifted() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    let theirs = of_another_team(&s).await;
    let planned = json!({"reason": "move of the office", "all_teams": true, "from": "2026-03-02T09:30:00Z"});
    let frozen = freeze(&s, planned).await;
    assert_eq!(
        (&frozen["state"], &frozen["team_id"], &frozen["until"]),
        (&json!("planned"), &Value::Null, &Value::Null)
    );
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted", "it has not begun");
    for wf in [wf, theirs] {
        assert_eq!(fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await, "paused");
    }
    let path = format!("/api/v1/freezes/{}", frozen["id"].as_str().unwrap());
    assert_eq!(s.editor().get(&path).await.expect(200).json["state"], "in_force", "each team sees it");
    assert_eq!(s.editor().post_empty(&format!("{path}:lift")).await.json["code"], "forbidden");
    s.admin().post_empty(&format!("{path}:lift")).await.expect(200);
    assert_eq!(fire_on_time(&s, theirs, "2026-03-02T11:00:00Z").await, "accepted");
    s.end_early().await;
}

/// Runs of the schedule that wait for their start wait on; what a person requests is not held.
#[tokio::test]
async fn no_automatic_run_starts_in_a_freeze() {
    let s = story_without_executor("2026-03-02T09:00:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "concurrent"})).await;
    assert_eq!(start_run(&s, wf, Trigger::Schedule, "2026-03-02T09:00:00Z").await, "accepted");
    let frozen = freeze(&s, json!({"reason": "incident"})).await;
    s.editor().post_empty(&format!("/api/v1/schedules/{wf}:fire")).await.expect(202);
    claimed(&s, wf).await;
    let states = "SELECT string_agg(trigger || ' ' || state, ', ' ORDER BY trigger) FROM runs";
    assert_eq!(s.table(states).await, "manual running, schedule accepted");
    lift(&s, &frozen).await;
    claimed(&s, wf).await;
    assert_eq!(s.table(states).await, "manual running, schedule running");
    s.end_early().await;
}

/// A run of the schedule that a freeze holds takes no slot from what a person requests: with a repaired receiver, an
/// operator tests the workflow before the freeze ends.
#[tokio::test]
async fn a_frozen_run_takes_no_slot() {
    let states = "SELECT string_agg(trigger || ' ' || state, ', ' ORDER BY trigger) FROM runs";
    for policy in ["skip", "queue"] {
        let s = story_without_executor("2026-03-02T09:00:00Z").await;
        let wf = hourly(&s, json!({"overlap_policy": policy})).await;
        assert_eq!(start_run(&s, wf, Trigger::Schedule, "2026-03-02T09:00:00Z").await, "accepted");
        let frozen = freeze(&s, json!({"reason": "incident"})).await;
        let fired = s.editor().post_empty(&format!("/api/v1/schedules/{wf}:fire")).await.expect(202).json;
        claimed(&s, wf).await;
        assert_eq!(s.table(states).await, "manual running, schedule queued", "{policy}");
        assert_eq!(s.job("queue").await, Did::Nothing, "it waits for the end of the freeze");
        ended(&s, wf).await;
        let retry = format!("/api/v1/runs/{}:retry", fired["run_id"].as_str().unwrap());
        s.editor().post_empty(&retry).await.expect(202);
        assert_eq!(s.table(states).await, "manual succeeded, retry accepted, schedule queued", "{policy}");
        ended(&s, wf).await;
        lift(&s, &frozen).await;
        s.job("queue").await;
        claimed(&s, wf).await;
        assert_eq!(s.table(states).await, "manual succeeded, retry succeeded, schedule running", "{policy}");
        s.end_early().await;
    }
}

/// A manual run waits for a run of the schedule, which fails in the freeze, and is tried again after it.
#[tokio::test]
async fn a_waiting_manual_run_gets_the_slot_of_a_frozen_run() {
    let s = story_without_executor("2026-03-02T09:00:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "queue", "max_attempts": 5})).await;
    assert_eq!(start_run(&s, wf, Trigger::Schedule, "2026-03-02T09:00:00Z").await, "accepted");
    claimed(&s, wf).await;
    freeze(&s, json!({"reason": "incident"})).await;
    s.editor().post_empty(&format!("/api/v1/schedules/{wf}:fire")).await.expect(202);
    let states = "SELECT string_agg(trigger || ' ' || state, ', ' ORDER BY trigger) FROM runs";
    assert_eq!(s.table(states).await, "manual queued, schedule running");
    let tried_again =
        "UPDATE runs SET state = 'accepted', tries = 1, locked_by = NULL, locked_at = NULL, lease_until = NULL
                        WHERE trigger = 'schedule'";
    s.execute(tried_again).await;
    s.job("queue").await;
    assert_eq!(s.table(states).await, "manual accepted, schedule queued");
    assert_eq!(s.job("queue").await, Did::Nothing, "nothing else waits for the slot");
    s.end_early().await;
}

/// A backfill does not advance in a freeze: one that waits gets no slot that the freeze holds, and none that is freed for
/// what a person requests, also after its end. So the run that the freeze holds does not wait for it afterwards.
#[tokio::test]
async fn a_waiting_backfill_gets_no_slot_of_a_frozen_run() {
    let s = story_without_executor("2026-03-02T09:00:00Z").await;
    let wf = hourly(&s, json!({})).await;
    assert_eq!(start_run(&s, wf, Trigger::Schedule, "2026-03-02T09:00:00Z").await, "accepted");
    assert_eq!(start_run(&s, wf, Trigger::Backfill, "2026-03-01T03:00:00Z").await, "queued");
    let frozen = freeze(&s, json!({"reason": "incident"})).await;
    assert_eq!(s.job("queue").await, Did::Nothing);
    let states = "SELECT string_agg(trigger || ' ' || state, ', ' ORDER BY trigger) FROM runs";
    assert_eq!(s.table(states).await, "backfill queued, schedule accepted");
    let fired = s.editor().post_empty(&format!("/api/v1/schedules/{wf}:fire")).await.expect(202).json;
    assert_eq!(s.table(states).await, "backfill queued, manual accepted, schedule queued");
    assert_eq!(s.job("queue").await, Did::Nothing);
    ended(&s, wf).await;
    assert_eq!(s.job("queue").await, Did::Nothing);
    assert_eq!(s.table(states).await, "backfill queued, manual succeeded, schedule queued");
    let retry = format!("/api/v1/runs/{}:retry", fired["run_id"].as_str().unwrap());
    s.editor().post_empty(&retry).await.expect(202);
    assert_eq!(s.table(states).await, "backfill queued, manual succeeded, retry accepted, schedule queued");
    ended(&s, wf).await;
    lift(&s, &frozen).await;
    s.job("queue").await;
    assert_eq!(s.table(states).await, "backfill queued, manual succeeded, retry succeeded, schedule accepted");
    s.end_early().await;
}

/// A retry gets the slot of a run that the freeze holds, also if a backfill has waited for longer.
#[tokio::test]
async fn a_retry_in_a_freeze_comes_before_a_waiting_backfill() {
    let s = story_without_executor("2026-03-02T08:59:00Z").await;
    let wf = hourly(&s, json!({})).await;
    let fired = s.editor().post_empty(&format!("/api/v1/schedules/{wf}:fire")).await.expect(202).json;
    ended(&s, wf).await;
    s.now_is("2026-03-02T09:00:00Z").await;
    assert_eq!(start_run(&s, wf, Trigger::Schedule, "2026-03-02T09:00:00Z").await, "accepted");
    assert_eq!(start_run(&s, wf, Trigger::Backfill, "2026-03-01T03:00:00Z").await, "queued");
    freeze(&s, json!({"reason": "incident"})).await;
    let retry = format!("/api/v1/runs/{}:retry", fired["run_id"].as_str().unwrap());
    s.editor().post_empty(&retry).await.expect(202);
    let states = "SELECT string_agg(trigger || ' ' || state, ', ' ORDER BY trigger) FROM runs";
    assert_eq!(s.table(states).await, "backfill queued, manual succeeded, retry accepted, schedule queued");
    s.end_early().await;
}

#[tokio::test]
async fn backfills_wait_for_the_end_of_a_freeze() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"catch_up_policy": "none"})).await;
    s.now_is("2026-03-02T11:30:00Z").await;
    s.job("watchdog").await;
    let frozen = freeze(&s, json!({"reason": "incident"})).await;
    let span = json!({"start": "2026-03-02T08:30:00Z", "end": "2026-03-02T11:30:00Z"});
    let backfill = s.editor().post(&format!("/api/v1/schedules/{wf}:backfill"), &span).await.expect(202).json;
    s.job("backfills").await;
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 0);
    lift(&s, &frozen).await;
    finished_backfill(&s, &backfill).await;
    assert_eq!(s.count("SELECT count(*) FROM occurrences WHERE decision = 'backfilled'").await, 3);
    s.publish().await;
    s.end().await;
}

/// The proof reads the freezes: a run of a frozen time is a difference. A fire that was decided while the freeze was being
/// committed is none.
#[tokio::test]
async fn a_run_of_a_frozen_time_is_a_difference() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    let span = "from=2026-03-02T08:30:00Z&to=2026-03-02T09:30:00Z";
    let found = async |created_on: &str| {
        let freeze = "INSERT INTO freezes (id, reason, starts_on, actor, created_on)
                      VALUES (gen_random_uuid(), 'late', $1::timestamptz, 'a', $1::timestamptz)";
        let created_on: chrono::DateTime<chrono::Utc> = created_on.parse().unwrap();
        sqlx::query(freeze).bind(created_on).execute(&s.pool).await.unwrap();
        s.now_is("2026-03-02T10:10:00Z").await;
        settle(&s).await;
        differences(&verify(&s, span).await.expect(200))
    };
    assert_eq!(found("2026-03-02T09:00:00Z").await, Vec::<String>::new(), "five seconds before the decision");
    assert_eq!(found("2026-03-02T08:45:00Z").await, ["09:00 ran_frozen"]);
    s.end_early().await;
}
