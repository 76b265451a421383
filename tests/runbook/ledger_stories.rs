//! Due times that have no decision, or do not run.

use chrono::{SecondsFormat, TimeDelta};
use serde_json::json;

use crate::scene::Scene;
use crate::server::Server;

/// Four instances share the watchdog's work by shards.
async fn watchdog(scene: &Scene) {
    for job in ["watchdog", "watchdog_2", "watchdog_3", "watchdog_4"] {
        scene.job(job).await;
    }
}

#[tokio::test]
async fn the_watchdog_does_not_run() {
    let mut scene = Scene::new().await;
    scene.create("* * * * *", "UTC").await;
    watchdog(&scene).await;
    scene.observe(5).await;
    scene.silent("ledger-lag", "CronboxLedgerLag");
    scene.skip(20).await;
    scene.observe(10).await;
    scene.rings("ledger-lag", "CronboxLedgerLag");
    scene.walk("ledger-lag", &[]).await.shows("decided_through");
    watchdog(&scene).await;
    scene.observe(6).await;
    scene.silent("ledger-lag", "CronboxLedgerLag");
    scene.end().await;
}

#[tokio::test]
async fn due_times_were_missed() {
    let mut scene = Scene::new().await;
    let fields = json!({"cron_schedule": "* * * * *", "timezone": "UTC", "catch_up_policy": "none"});
    let workflow = scene.create_with(fields).await;
    scene.observe(5).await;
    scene.silent("occurrences-missed", "CronboxTimesMissed");
    let from = scene.now() - TimeDelta::minutes(5);
    scene.skip(10).await;
    watchdog(&scene).await;
    scene.observe(5).await;
    scene.rings("occurrences-missed", "CronboxTimesMissed");
    let time = |time: chrono::DateTime<chrono::Utc>| time.to_rfc3339_opts(SecondsFormat::Secs, true);
    // What is due from now on waits for its fires, which do not come in this story.
    scene.pause(workflow).await;
    scene.resume(workflow).await;
    let span = [("WORKFLOW", workflow.to_string()), ("FROM", time(from)), ("TO", time(scene.now()))];
    scene.walk("occurrences-missed", &span).await.shows(" missed ");
    for _ in 0..30 {
        scene.job("backfills").await;
        scene.runs_end().await;
    }
    assert_eq!(scene.count("SELECT count(*) FROM backfills WHERE state = 'running'").await, 0);
    scene.observe(5).await;
    scene.silent("occurrences-missed", "CronboxTimesMissed");
    scene.end().await;
}

/// EventBridge fires at a time that the published expression does not name.
#[tokio::test]
async fn eventbridge_fires_at_another_time() {
    let mut scene = Scene::new().await;
    let workflow = scene.create("30 * * * *", "UTC").await;
    scene.observe(6).await;
    scene.silent("fires-disagree", "CronboxFiresDisagree");
    let time = scene.now().to_rfc3339_opts(SecondsFormat::Secs, true);
    let fire = json!({"scheduled_time": time, "revision": 1});
    let answer = scene.invoke_at(scene.url(), workflow, fire).await;
    assert_eq!(answer.body["reason"], "not_due", "{}", answer.body);
    scene.observe(6).await;
    scene.rings("fires-disagree", "CronboxFiresDisagree");
    scene.walk("fires-disagree", &[]).await.shows("scheduled_time").shows("zone_data");
    scene.observe(60).await;
    scene.observe(6).await;
    scene.silent("fires-disagree", "CronboxFiresDisagree");
    scene.end().await;
}

/// Each minute is due, and the receiver of the first run does not answer.
#[tokio::test]
async fn a_receiver_is_slower_than_its_schedule() {
    let mut scene = Scene::new().await;
    let server = Server::silent().await;
    let fields =
        json!({"cron_schedule": "* * * * *", "timezone": "UTC", "overlap_policy": "skip", "action": server.action()});
    let workflow = scene.create_with(fields).await;
    scene.observe(6).await;
    scene.silent("skipped-overlap", "CronboxTimesSkipped");
    for _ in 0..12 {
        scene.skip(1).await;
        let time = scene.now().to_rfc3339_opts(SecondsFormat::Secs, true);
        assert_eq!(scene.invoke(workflow, &time).await.status / 100, 2);
    }
    scene.observe(10).await;
    scene.rings("skipped-overlap", "CronboxTimesSkipped");
    scene
        .walk("skipped-overlap", &[("WORKFLOW", workflow.to_string())])
        .await
        .shows("skipped_overlap")
        .shows("running");
    assert_eq!(scene.workflow(workflow).await["overlap_policy"], "concurrent");
    server.answer_all();
    scene.observe(60).await;
    scene.observe(6).await;
    scene.silent("skipped-overlap", "CronboxTimesSkipped");
    scene.end().await;
}
