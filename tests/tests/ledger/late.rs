//! A fire that comes late: whether it runs does not depend on who comes first.

use serde_json::json;

use crate::words::{fire, fire_on_time, hourly, standing_still};

#[tokio::test]
async fn within_the_grace_a_fire_runs_under_every_policy() {
    let s = standing_still("2026-03-02T08:30:00Z").await;
    for policy in ["none", "skip", "run_all"] {
        let wf = hourly(&s, json!({"catch_up_policy": policy})).await;
        s.now_is("2026-03-02T09:03:00Z").await;
        assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "accepted", "{policy}");
        s.now_is("2026-03-02T08:30:00Z").await;
    }
    s.end_early().await;
}

#[tokio::test]
async fn under_none_a_late_fire_is_too_old_and_missed() {
    let s = standing_still("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"catch_up_policy": "none"})).await;
    s.now_is("2026-03-02T09:03:01Z").await;
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "too_old");
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z missed");
    s.end_early().await;
}

#[tokio::test]
async fn under_skip_a_late_fire_runs_if_it_is_the_newest() {
    let s = standing_still("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "concurrent"})).await;
    // 11:00 is not late yet: only what was owed up to three minutes ago overtakes.
    s.now_is("2026-03-02T11:02:00Z").await;
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "missed", "10:00 was owed");
    assert_eq!(fire(&s, wf, "2026-03-02T10:00:00Z").await, "accepted", "the newest");
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "missed", "10:00 has run");
    assert_eq!(fire(&s, wf, "2026-03-02T11:00:00Z").await, "accepted");
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z missed\n2026-03-02T10:00Z fired\n2026-03-02T11:00Z fired");
    s.end_early().await;
}

#[tokio::test]
async fn under_skip_a_late_fire_does_not_run_after_a_later_one_has() {
    let s = standing_still("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"overlap_policy": "concurrent"})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await, "accepted");
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "missed");
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z missed\n2026-03-02T10:00Z fired");
    s.end_early().await;
}

#[tokio::test]
async fn under_run_all_every_late_fire_within_the_window_runs() {
    let s = standing_still("2026-03-02T08:30:00Z").await;
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

#[tokio::test]
async fn a_late_fire_of_a_version_that_an_edit_or_a_pause_ended_does_not_run() {
    let s = standing_still("2026-03-02T08:30:00Z").await;
    let edited = hourly(&s, json!({"catch_up_policy": "run_all"})).await;
    let paused = hourly(&s, json!({"catch_up_policy": "run_all"})).await;
    s.now_is("2026-03-02T09:01:00Z").await;
    s.edit(edited, json!({"cron_schedule": "30 * * * *"})).await;
    assert_eq!(fire(&s, edited, "2026-03-02T09:00:00Z").await, "accepted", "on time, it runs");
    s.now_is("2026-03-02T10:31:00Z").await;
    s.edit(edited, json!({"cron_schedule": "0 * * * *"})).await;
    s.pause(paused).await;
    s.resume(paused).await;
    s.now_is("2026-03-02T10:35:00Z").await;
    assert_eq!(fire(&s, edited, "2026-03-02T10:30:00Z").await, "missed");
    assert_eq!(fire(&s, paused, "2026-03-02T10:00:00Z").await, "paused");
    assert_eq!(s.occurrences(edited).await, "2026-03-02T09:00Z fired\n2026-03-02T10:30Z missed");
    assert_eq!(s.occurrences(paused).await, "2026-03-02T10:00Z skipped_paused");
    s.end_early().await;
}

#[tokio::test]
async fn a_missed_time_may_still_be_fired_but_a_pause_leaves_it_missed() {
    let s = standing_still("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({"catch_up_policy": "none"})).await;
    s.now_is("2026-03-02T09:10:00Z").await;
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "too_old");
    s.edit(wf, json!({"catch_up_policy": "skip"})).await;
    s.pause(wf).await;
    assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "paused");
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z missed", "the row stands");
    let other = hourly(&s, json!({"catch_up_policy": "none"})).await;
    s.now_is("2026-03-02T10:10:00Z").await;
    assert_eq!(fire(&s, other, "2026-03-02T10:00:00Z").await, "too_old");
    s.edit(other, json!({"catch_up_policy": "skip"})).await;
    assert_eq!(fire(&s, other, "2026-03-02T10:00:00Z").await, "accepted");
    assert_eq!(s.occurrences(other).await, "2026-03-02T10:00Z fired");
    s.end_early().await;
}
