//! Late fires: whether a time runs does not depend on whether its fire or the watchdog comes first.

use ledger::invoke::{Answer, FireDecider, Reason};
use schedule::Fire;
use serde_json::json;

use crate::catch_up::watchdog_races::{WAITING, lock_workflow};
use crate::database::query_plans::one_connection;
use crate::steps::{fire, fire_on_time, hourly, story_without_executor};

#[tokio::test]
async fn every_policy_runs_fires_within_the_grace() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    for policy in ["none", "skip", "run_all"] {
        let wf = hourly(&s, json!({"catch_up_policy": policy})).await;
        s.now_is("2026-03-02T09:05:00Z").await;
        assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "accepted", "{policy}");
        s.now_is("2026-03-02T08:30:00Z").await;
    }
    s.end_early().await;
}

/// An earlier run has not started, so the fire must wait for it. It has the same grace.
#[tokio::test]
async fn waiting_fires_keep_the_full_grace() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    for policy in ["none", "skip", "run_all"] {
        let wf = hourly(&s, json!({"catch_up_policy": policy})).await;
        assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
        s.now_is("2026-03-02T10:05:00Z").await;
        assert_eq!(fire(&s, wf, "2026-03-02T10:00:00Z").await, "accepted", "{policy}");
        assert_eq!(s.runs_of(wf).await[0]["trigger"], "schedule", "{policy}");
        s.now_is("2026-03-02T10:55:00Z").await;
        assert_eq!(fire(&s, wf, "2026-03-02T11:00:00Z").await, "accepted", "{policy}: five minutes early");
        s.now_is("2026-03-02T11:54:59Z").await;
        assert_eq!(fire(&s, wf, "2026-03-02T12:00:00Z").await, "503 clock_skew", "{policy}");
        s.now_is("2026-03-02T08:30:00Z").await;
    }
    s.end_early().await;
}

/// Under `run_all`, a fire is deferred from the next due time on.
#[tokio::test]
async fn the_next_due_time_overtakes_a_fire() {
    let s = story_without_executor("2026-03-02T08:59:30Z").await;
    for (now, trigger) in [
        ("2026-03-02T09:00:59Z", "schedule"),
        ("2026-03-02T09:01:00Z", "catch_up"),
        ("2026-03-02T09:02:30Z", "catch_up"),
    ] {
        let wf = s.create_with(json!({"cron_schedule": "* * * * *", "catch_up_policy": "run_all"})).await;
        s.now_is(now).await;
        assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "accepted", "{now}");
        assert_eq!(s.runs_of(wf).await[0]["trigger"], trigger, "{now}");
        s.now_is("2026-03-02T08:59:30Z").await;
    }
    s.end_early().await;
}

/// The answer is `too_old`.
#[tokio::test]
async fn under_none_a_late_fire_is_missed() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"catch_up_policy": "none"})).await;
    s.now_is("2026-03-02T09:05:01Z").await;
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "too_old");
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z missed");
    s.end_early().await;
}

/// Late fires of earlier times are missed.
#[tokio::test]
async fn under_skip_the_newest_late_fire_runs() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "concurrent"})).await;
    // 11:00 is not late yet: a time overtakes earlier ones when it is more than 300 s old.
    s.now_is("2026-03-02T11:02:00Z").await;
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "missed", "10:00 was due");
    assert_eq!(fire(&s, wf, "2026-03-02T10:00:00Z").await, "accepted", "the newest");
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "missed", "10:00 has run");
    assert_eq!(fire(&s, wf, "2026-03-02T11:00:00Z").await, "accepted");
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z missed\n2026-03-02T10:00Z fired\n2026-03-02T11:00Z fired");
    s.end_early().await;
}

/// A later time has a run, so the late fire of an earlier time is missed.
#[tokio::test]
async fn under_skip_later_runs_exclude_earlier_fires() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "concurrent"})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await, "accepted");
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "missed");
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z missed\n2026-03-02T10:00Z fired");
    s.end_early().await;
}

/// A fire that is older than the catch-up window is missed.
#[tokio::test]
async fn run_all_runs_late_fires_within_window() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(
        &s,
        json!({"overlap_policy": "concurrent", "catch_up_policy": "run_all",
                               "catch_up_window_secs": 7200}),
    )
    .await;
    s.now_is("2026-03-02T12:00:00Z").await;
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "too_old");
    assert_eq!(fire(&s, wf, "2026-03-02T11:00:00Z").await, "accepted");
    assert_eq!(fire(&s, wf, "2026-03-02T10:00:00Z").await, "accepted", "exactly as old as the window");
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z missed\n2026-03-02T10:00Z fired\n2026-03-02T11:00Z fired");
    s.end_early().await;
}

/// A late fire is refused only if its time is before the last activation.
#[tokio::test]
async fn due_time_at_its_activation_runs_late() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"catch_up_policy": "run_all"})).await;
    s.pause(wf).await;
    s.now_is("2026-03-02T09:00:00Z").await;
    s.resume(wf).await;
    s.now_is("2026-03-02T09:10:00Z").await;
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    s.end_early().await;
}

/// The backup may lack the run of a late fire, but not the run of a fire on time.
#[tokio::test]
async fn restored_database_defers_only_late_fires() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "concurrent"})).await;
    s.until("SELECT count(*) FROM database_identity", 1).await;
    s.execute("UPDATE database_identity SET held_on = cronbox_now(), held_reason = 'marked'").await;
    // The second fire is not on the fast path, because the first run still runs.
    for (now, time) in
        [("2026-03-02T09:05:00Z", "2026-03-02T09:00:00Z"), ("2026-03-02T10:05:00Z", "2026-03-02T10:00:00Z")]
    {
        s.now_is(now).await;
        assert_eq!(fire(&s, wf, time).await, "accepted", "exactly 300 s old");
    }
    s.now_is("2026-03-02T11:05:01Z").await;
    assert_eq!(fire(&s, wf, "2026-03-02T11:00:00Z").await, "503 ledger_held");
    s.execute("UPDATE database_identity SET held_on = NULL, held_reason = NULL").await;
    assert_eq!(fire(&s, wf, "2026-03-02T11:00:00Z").await, "accepted", "once the ledger is accepted");
    s.end_early().await;
}

/// An edit or a pause has ended the version by which the time was due.
#[tokio::test]
async fn late_fires_of_ended_versions_never_run() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let edited = hourly(&s, json!({"catch_up_policy": "run_all"})).await;
    let paused = hourly(&s, json!({"catch_up_policy": "run_all"})).await;
    s.now_is("2026-03-02T09:01:00Z").await;
    s.edit(edited, json!({"cron_schedule": "30 * * * *"})).await;
    assert_eq!(fire(&s, edited, "2026-03-02T09:00:00Z").await, "accepted", "on time, it runs");
    s.now_is("2026-03-02T10:31:00Z").await;
    s.edit(edited, json!({"cron_schedule": "0 * * * *"})).await;
    s.pause(paused).await;
    s.resume(paused).await;
    s.now_is("2026-03-02T10:35:01Z").await;
    assert_eq!(fire(&s, edited, "2026-03-02T10:30:00Z").await, "missed");
    assert_eq!(fire(&s, paused, "2026-03-02T10:00:00Z").await, "paused");
    assert_eq!(s.occurrences(edited).await, "2026-03-02T09:00Z fired\n2026-03-02T10:30Z missed");
    assert_eq!(s.occurrences(paused).await, "2026-03-02T10:00Z skipped_paused");
    s.end_early().await;
}

/// After an edit of the catch-up policy, the fire of a missed time runs. During a pause, the time remains missed.
#[tokio::test]
async fn a_missed_time_may_run_unless_paused() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"catch_up_policy": "none"})).await;
    s.now_is("2026-03-02T09:10:00Z").await;
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "too_old");
    s.edit(wf, json!({"catch_up_policy": "skip"})).await;
    s.pause(wf).await;
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "paused");
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z missed", "the row is kept");
    let other = hourly(&s, json!({"catch_up_policy": "none"})).await;
    s.now_is("2026-03-02T10:10:00Z").await;
    assert_eq!(fire(&s, other, "2026-03-02T10:00:00Z").await, "too_old");
    s.edit(other, json!({"catch_up_policy": "skip"})).await;
    assert_eq!(fire(&s, other, "2026-03-02T10:00:00Z").await, "accepted");
    assert_eq!(s.occurrences(other).await, "2026-03-02T10:00Z fired");
    s.end_early().await;
}

/// An operator has accepted a restored ledger. The run of a missed time may be lost, so that time must not run.
#[tokio::test]
async fn times_missed_by_a_restore_never_run() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"catch_up_policy": "none"})).await;
    s.now_is("2026-03-02T09:10:00Z").await;
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "too_old");
    s.edit(wf, json!({"catch_up_policy": "skip"})).await;
    s.execute("UPDATE occurrences SET reason = 'restored'").await;
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "missed");
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z missed");
    s.end_early().await;
}

/// The fire arrives within the grace, and waits for the workflow's lock until the grace is over.
#[tokio::test]
async fn fires_age_while_they_await_a_lock() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"catch_up_policy": "none"})).await;
    s.now_is("2026-03-02T09:02:50Z").await;
    let holder = lock_workflow(&s, wf).await;
    let released = async {
        s.until(WAITING, 1).await;
        s.now_is("2026-03-02T09:05:01Z").await;
        holder.rollback().await.unwrap();
    };
    let (answer, ()) = tokio::join!(fire(&s, wf, "2026-03-02T09:00:00Z"), released);
    assert_eq!(answer, "too_old");
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z missed");
    s.end_early().await;
}

/// The fire arrives within the grace, and waits for a connection until the grace is over.
#[tokio::test]
async fn fires_age_while_they_await_a_connection() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"catch_up_policy": "none"})).await;
    s.now_is("2026-03-02T09:02:50Z").await;
    let pool = one_connection(&s).await;
    let decider = FireDecider::new(pool.clone(), s.app().config.ledger_kept());
    let fire = Fire::from_event(&json!({"workflow_id": wf.0, "scheduled_time": "2026-03-02T09:00:00Z"})).unwrap();
    let only_one = pool.acquire().await.unwrap();
    let mut deciding = Box::pin(decider.decide_fire(&fire));
    assert!(futures::poll!(&mut deciding).is_pending());
    s.now_is("2026-03-02T09:05:01Z").await;
    drop(only_one);
    assert_eq!(deciding.await.unwrap(), Answer::Declined(Reason::TooOld));
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z missed");
    s.end_early().await;
}
