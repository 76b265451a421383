//! Edits that do not reach EventBridge, and a publisher that does not run.

use serde_json::json;
use stand_in::scheduler::faults::Plan;
use tests::Way;

use crate::scene::Scene;
use tests::publisher_process::{Daemon, Lambda};

/// A cron that is not due while a story lasts.
pub(crate) const RARELY: &str = "0 0 29 2 *";

/// From now on EventBridge has these faults; none = it is well.
pub(crate) fn plan_faults(scene: &Scene, faults: serde_json::Value) {
    let plan: Plan = serde_json::from_value(json!({ "faults": faults })).unwrap();
    scene.stand_in.scheduler.plan_faults(plan);
}

/// EventBridge is well until all ticks of the next minutes are over.
pub(crate) async fn recover(scene: &mut Scene) {
    plan_faults(scene, json!([]));
    // The backoff of what failed ends.
    scene.skip(16).await;
}

/// An edit whose stored timezone no version of the publisher knows.
const UNKNOWN_TIMEZONE: &str = "
    UPDATE workflows SET timezone = 'Mars/Phobos', revision = revision + 1;
    UPDATE publications SET desired_revision = desired_revision + 1, due_at = cronbox_now();
    INSERT INTO outbox_events (aggregate_id, op, created_on) SELECT id, 'upsert', cronbox_now() FROM workflows";

/// The same edit, as if a newer version of the publisher knew its timezone.
const KNOWN_TIMEZONE: &str = "SET session_replication_role = replica; UPDATE workflows SET timezone = 'Europe/Paris';
                              RESET session_replication_role";

#[tokio::test]
async fn an_edit_fails_permanently() {
    let mut scene = Scene::with_daemon().await;
    let workflow = scene.create(RARELY, "UTC").await;
    scene.observe(5).await;
    scene.silent("outbox-failed", "CronboxOutboxFailed");
    scene.execute(UNKNOWN_TIMEZONE).await;
    scene.observe(1).await;
    scene.observe(5).await;
    scene.rings("outbox-failed", "CronboxOutboxFailed");
    scene.execute(KNOWN_TIMEZONE).await;
    scene.walk("outbox-failed", &[]).await.shows("Mars/Phobos");
    scene.observe(1).await;
    scene.observe(5).await;
    scene.silent("outbox-failed", "CronboxOutboxFailed");
    assert_eq!(scene.schedule(workflow), "cron(0 0 29 2 ? *) Europe/Paris ENABLED");
    scene.end().await;
}

#[tokio::test]
async fn edits_wait_while_eventbridge_throttles() {
    let mut scene = Scene::with_daemon().await;
    scene.observe(5).await;
    scene.silent("outbox-lag", "CronboxOutboxLag");
    plan_faults(&scene, json!([{"kind": "throttle", "chance": 1.0}]));
    let workflow = scene.create(RARELY, "UTC").await;
    scene.observe(6).await;
    scene.observe(6).await;
    scene.rings("outbox-lag", "CronboxOutboxLag");
    scene.walk("outbox-lag", &[]).await.shows("throttles");
    recover(&mut scene).await;
    scene.observe(1).await;
    scene.observe(6).await;
    scene.silent("outbox-lag", "CronboxOutboxLag");
    assert_ne!(scene.schedule(workflow), "none");
    scene.end().await;
}

const ROLE_REFUSED: &str = r#"[{"kind": "assume_role", "chance": 1.0}]"#;

#[tokio::test]
async fn every_workflow_is_refused() {
    let mut scene = Scene::new().await;
    scene.observe(5).await;
    scene.silent("drains-stopped", "");
    plan_faults(&scene, serde_json::from_str(ROLE_REFUSED).unwrap());
    for _ in 0..3 {
        scene.create(RARELY, "UTC").await;
    }
    scene.observe(3).await;
    scene.rings("drains-stopped", "");
    scene.walk("drains-stopped", &[]).await.shows("role");
    recover(&mut scene).await;
    scene.observe(1).await;
    scene.observe(3).await;
    scene.silent("drains-stopped", "");
    assert_eq!(scene.count("SELECT count(*) FROM publications WHERE applied_revision IS NULL").await, 0);
    scene.end().await;
}

#[tokio::test]
async fn a_daemon_is_refused_every_workflow() {
    let mut scene = Scene::with_daemon().await;
    scene.lambda = None;
    scene.observe(6).await;
    scene.silent("", "CronboxDrainsStopped");
    plan_faults(&scene, serde_json::from_str(ROLE_REFUSED).unwrap());
    for _ in 0..3 {
        scene.create(RARELY, "UTC").await;
    }
    scene.daemon.as_ref().unwrap().until("cronbox_publisher_drains_stopped_total", |stops| stops > 0.0).await;
    scene.observe(4).await;
    scene.rings("", "CronboxDrainsStopped");
    scene.walk("drains-stopped", &[]).await.shows("role");
    recover(&mut scene).await;
    scene.until("SELECT count(*) FROM publications WHERE applied_revision IS NULL", 0).await;
    scene.observe(1).await;
    scene.observe(10).await;
    scene.silent("", "CronboxDrainsStopped");
    scene.end().await;
}

/// The rule of each minute is disabled, so that Lambda counts no invocation.
#[tokio::test]
async fn no_publisher_runs() {
    let mut scene = Scene::with_daemon().await;
    scene.observe(6).await;
    scene.silent("publisher-heartbeat", "CronboxPublisherDown");
    scene.lambda = None;
    scene.daemon.as_mut().unwrap().kill().await;
    scene.create(RARELY, "UTC").await;
    scene.observe(20).await;
    scene.rings("publisher-heartbeat", "CronboxPublisherDown");
    scene.walk("publisher-heartbeat", &[]).await.shows(" pending ").shows("\"status\":\"ok\"");
    scene.lambda = Some(Lambda::start(&scene.story, &[]).await);
    scene.daemon = Some(Daemon::start(&scene.story).await);
    scene.observe(6).await;
    scene.silent("publisher-heartbeat", "CronboxPublisherDown");
    scene.end().await;
}

#[tokio::test]
async fn the_publisher_reaches_no_database() {
    let mut scene = Scene::new().await;
    let dsn = scene.publisher_dsn();
    let mut way = Way::to(&dsn).await;
    scene.lambda = Some(Lambda::start(&scene.story, &[("CRONBOX_DB_DSN", way.dsn(&dsn))]).await);
    scene.observe(5).await;
    scene.silent("publisher-errors", "");
    way.cut().await;
    scene.observe(5).await;
    scene.rings("publisher-errors", "");
    scene.walk("publisher-errors", &[]).await.shows("active");
    way.mend().await;
    scene.observe(5).await;
    scene.silent("publisher-errors", "");
    scene.end().await;
}

/// The app was not migrated with its roles after an update, so that a table is closed to the publisher.
#[tokio::test]
async fn the_publisher_may_not_read_a_table() {
    let mut scene = Scene::with_daemon().await;
    scene.observe(6).await;
    scene.silent("figures-unread", "CronboxFiguresUnread");
    scene
        .execute("REVOKE SELECT (workflow_id, decision, run_id, decided_on) ON occurrences FROM cronbox_publisher")
        .await;
    scene.observe(12).await;
    scene.rings("figures-unread", "CronboxFiguresUnread");
    scene.walk("figures-unread", &[]).await;
    scene.observe(6).await;
    scene.silent("figures-unread", "CronboxFiguresUnread");
    scene.end().await;
}

#[tokio::test]
async fn a_restored_database_waits() {
    let mut scene = Scene::with_daemon().await;
    scene.observe(5).await;
    scene.silent("database-held", "CronboxDatabaseHeld");
    scene.execute("UPDATE database_identity SET held_on = cronbox_now(), held_reason = 'marked'").await;
    scene.observe(5).await;
    scene.rings("database-held", "CronboxDatabaseHeld");
    let gap_end = scene.now().to_rfc3339();
    scene.walk("database-held", &[("GAP_END", gap_end)]).await.shows("marked").shows("abandoned");
    scene.observe(5).await;
    scene.silent("database-held", "CronboxDatabaseHeld");
    scene.end().await;
}
