//! The test harness: a stack takes a workflow through all seven steps, and reports what is left open.

use local::stack::{Pending, Publishing, Stack, StackOptions};
use serde_json::json;
use tests::PATIENCE;

fn at(now: &str) -> StackOptions {
    StackOptions { now: Some(now.parse().unwrap()), ..StackOptions::default() }
}

/// The test sets the clock of all programs.
#[tokio::test]
async fn workflows_pass_all_seven_steps() {
    let s = Stack::start(at("2026-03-27T12:00:00Z")).await.unwrap();
    let wf = s.create("0 9 * * *", "Europe/Paris").await;
    assert_eq!(s.schedule(wf), "none", "not before it is published");
    let report = s.publish().await;
    assert_eq!((report.processed, report.created, report.remaining), (1, 1, 0));
    assert_eq!(s.schedule(wf), "cron(0 9 * * ? *) Europe/Paris ENABLED");
    s.clock_to("2026-03-29T07:00:00Z").await;
    assert_eq!(s.runs(wf).await, "2026-03-28T08:00Z schedule succeeded\n2026-03-29T07:00Z schedule succeeded");
    assert_eq!(s.occurrences(wf).await, "2026-03-28T08:00Z fired\n2026-03-29T07:00Z fired");
    s.pause(wf).await;
    s.publish().await;
    assert_eq!(s.schedule(wf), "cron(0 9 * * ? *) Europe/Paris DISABLED");
    s.edit(wf, json!({ "cron_schedule": null })).await;
    s.publish().await;
    assert_eq!(s.schedule(wf), "none");
    s.finish_story().await.unwrap();
}

#[tokio::test]
async fn listening_publishers_follow_edits() {
    let options = StackOptions { publishing: Publishing::Listening, ..StackOptions::default() };
    let s = Stack::start(options).await.unwrap();
    let wf = s.create_with(json!({ "cron_schedule": "0 9 * * *" })).await;
    let waited = s
        .send_as_editor(
            reqwest::Method::PATCH,
            &format!("/workflows/{wf}?wait=25"),
            Some(json!({ "cron_schedule": "5 9 * * *" })),
        )
        .await;
    assert_eq!(waited.body["sync"]["status"], "synced", "{}", waited.body);
    assert_eq!(s.schedule(wf), "cron(5 9 * * ? *) UTC ENABLED");
    // Its first sweep may have read the schedule before the edit and the row after it, so it requests a repair.
    let idle = async {
        while s.read_pending().await.unwrap() != Pending::default() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, idle).await.expect("the publisher does not come to an end");
    s.finish_story().await.unwrap();
}

#[tokio::test]
async fn two_apps_share_a_database() {
    let mut s = Stack::start(at("2026-03-27T12:00:00Z")).await.unwrap();
    let other = s.another_app().await.unwrap();
    let wf = s.create("* * * * *", "UTC").await;
    s.publish().await;
    s.set_clock("2026-03-27T12:01:00Z".parse().unwrap()).await;
    let first = s.invoke(wf, "2026-03-27T12:01:00Z").await;
    let second = s.invoke_at(&other, wf, json!({ "scheduled_time": "2026-03-27T13:01:00+01:00" })).await;
    assert_eq!((first.status, second.status), (202, 200));
    assert_eq!(first.body["run_id"], second.body["run_id"]);
    s.runs_end().await;
    // The stand-in fires the same minute, and the app answers that it is a duplicate.
    s.clock_to("2026-03-27T12:01:00Z").await;
    assert_eq!(s.runs(wf).await, "2026-03-27T12:01Z schedule succeeded");
    s.finish_story().await.unwrap();
}

#[tokio::test]
async fn a_story_that_ends_early_fails() {
    let s = Stack::start(at("2026-03-27T12:00:00Z")).await.unwrap();
    s.create("0 9 * * *", "UTC").await;
    let error = s.finish_story().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the test ended before everything was processed: 1 outbox rows, 0 leases, 1 publications due, 0 runs, 0 deliveries"
    );
}

#[tokio::test]
#[should_panic(expected = "the test ended before everything was processed")]
async fn a_dropped_stack_is_checked_too() {
    let s = Stack::start(at("2026-03-27T12:00:00Z")).await.unwrap();
    s.create("0 9 * * *", "UTC").await;
}

#[tokio::test]
async fn finished_stacks_may_be_dropped() {
    let s = Stack::start(at("2026-03-27T12:00:00Z")).await.unwrap();
    s.create("0 9 * * *", "UTC").await;
    s.publish().await;
}
