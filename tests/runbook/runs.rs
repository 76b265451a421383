//! Runs that wait, fail or are lost, workflows that cronbox pauses, and messages about them.

use schedule::WorkflowId;
use serde_json::{Value, json};

use crate::scene::Scene;
use crate::server::Server;

async fn fire(scene: &Scene, workflow: WorkflowId, times: usize) {
    for _ in 0..times {
        scene.admin().post(&format!("/api/v1/schedules/{workflow}:fire"), &json!({})).await.expect(202);
    }
}

/// A workflow whose runs may overlap and whose receiver is this one.
async fn calling(scene: &Scene, server: &Server, fields: Value) -> WorkflowId {
    let mut all = json!({"action": server.action(), "overlap_policy": "concurrent", "max_concurrent": 50});
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    scene.create_with(all).await
}

#[tokio::test]
async fn no_executor_takes_the_runs() {
    let mut scene = Scene::with(|config| config.executor_slots = 0).await;
    let workflow = scene.create_with(json!({})).await;
    scene.observe(5).await;
    scene.silent("runs-waiting", "CronboxRunsWait");
    fire(&scene, workflow, 1).await;
    scene.skip(10).await;
    scene.observe(6).await;
    scene.rings("runs-waiting", "CronboxRunsWait");
    scene.walk("runs-waiting", &[]).await.shows(" accepted ");
    scene.story.another_app_with(|_| {}).await.unwrap();
    scene.runs_end().await;
    scene.observe(6).await;
    scene.silent("runs-waiting", "CronboxRunsWait");
    scene.end().await;
}

#[tokio::test]
async fn the_slots_are_used_up() {
    let one_slot = |config: &mut app::Config| (config.executor_slots, config.executor_team_percent) = (1, 100);
    let mut scene = Scene::with(one_slot).await;
    let server = Server::silent().await;
    let workflow = calling(&scene, &server, json!({})).await;
    scene.observe(5).await;
    scene.silent("", "CronboxSlotsUsedUp");
    fire(&scene, workflow, 2).await;
    scene.until("SELECT count(*) FROM runs WHERE state = 'running'", 1).await;
    scene.until_shown("cronbox_executor_slots_used 1").await;
    scene.observe(15).await;
    scene.rings("", "CronboxSlotsUsedUp");
    scene.walk("runs-waiting", &[]).await.shows(" running ").shows(" accepted ");
    server.answer_all();
    scene.runs_end().await;
    scene.until_shown("cronbox_executor_slots_used 0").await;
    scene.observe(6).await;
    scene.silent("", "CronboxSlotsUsedUp");
    scene.end().await;
}

/// The instance that executes a run stops its heartbeats; the workflow excludes a second call.
#[tokio::test]
async fn an_instance_is_lost_with_its_run() {
    let mut scene = Scene::new().await;
    let server = Server::silent().await;
    let workflow = calling(&scene, &server, json!({"on_lost": "abandon"})).await;
    scene.observe(5).await;
    scene.silent("occurrences-abandoned", "CronboxRunsAbandoned");
    fire(&scene, workflow, 1).await;
    scene.until("SELECT count(*) FROM runs WHERE state = 'running'", 1).await;
    while scene.count("SELECT count(*) FROM runs WHERE state = 'abandoned'").await == 0 {
        // Its next heartbeat comes within seconds, and its lease would go on.
        scene.skip(5).await;
        scene.job("recovery").await;
    }
    scene.observe(5).await;
    scene.rings("occurrences-abandoned", "CronboxRunsAbandoned");
    let run: uuid::Uuid = sqlx::query_scalar("SELECT id FROM runs").fetch_one(&scene.pool).await.unwrap();
    server.answer_all();
    scene.walk("occurrences-abandoned", &[("RUN", run.to_string())]).await.shows(" abandoned ");
    scene.runs_end().await;
    assert_eq!(scene.count("SELECT count(*) FROM runs WHERE state = 'succeeded'").await, 1);
    scene.observe(60).await;
    scene.observe(5).await;
    scene.silent("occurrences-abandoned", "CronboxRunsAbandoned");
    scene.end().await;
}

#[tokio::test]
async fn many_runs_fail() {
    let mut scene = Scene::new().await;
    let server = Server::answering(500).await;
    let workflow = calling(&scene, &server, json!({})).await;
    scene.observe(6).await;
    scene.silent("runs-failed", "CronboxRunsFail");
    fire(&scene, workflow, 12).await;
    scene.runs_end().await;
    scene.skip(1).await;
    scene.observe(8).await;
    scene.rings("runs-failed", "CronboxRunsFail");
    server.set(200);
    scene.walk("runs-failed", &[]).await.shows(" failed ");
    scene.job("bulk").await;
    scene.runs_end().await;
    assert_eq!(scene.count("SELECT count(*) FROM runs WHERE state = 'succeeded'").await, 12);
    scene.observe(60).await;
    scene.observe(10).await;
    scene.silent("runs-failed", "CronboxRunsFail");
    scene.end().await;
}

#[tokio::test]
async fn cronbox_pauses_what_always_fails() {
    let mut scene = Scene::new().await;
    let server = Server::answering(500).await;
    let workflow = calling(&scene, &server, json!({"pause_after_failures": 3})).await;
    scene.observe(5).await;
    scene.silent("auto-paused", "CronboxWorkflowsAutoPaused");
    fire(&scene, workflow, 3).await;
    scene.until("SELECT count(*) FROM workflows WHERE paused_by = 'cronbox'", 1).await;
    scene.observe(5).await;
    scene.rings("auto-paused", "CronboxWorkflowsAutoPaused");
    server.set(200);
    scene.walk("auto-paused", &[("WORKFLOW", workflow.to_string())]).await.shows(" paused ").shows(" failed ");
    assert_eq!(scene.workflow(workflow).await["state"], "active");
    scene.observe(5).await;
    scene.silent("auto-paused", "CronboxWorkflowsAutoPaused");
    scene.end().await;
}

/// Two of its messages are pending; a pass of the job makes them, and one delivers them.
async fn send(scene: &Scene) {
    for _ in 0..4 {
        scene.job("notifications").await;
    }
}

#[tokio::test]
async fn messages_about_failures_are_refused() {
    let mut scene = Scene::with_daemon().await;
    let (receiver, channel) = (Server::answering(500).await, Server::answering(410).await);
    let workflow = calling(&scene, &receiver, json!({})).await;
    let body = json!({"name": "n", "kind": "webhook", "url": channel.url});
    let id = scene.editor().post("/api/v1/notification-channels", &body).await.expect(201).id();
    let rule = json!({"event": "run_failed", "group_secs": 0, "channel_ids": [id]});
    scene.editor().post("/api/v1/notification-rules", &rule).await.expect(201);
    scene.observe(5).await;
    scene.silent("messages-failed", "CronboxMessagesFail");
    fire(&scene, workflow, 1).await;
    scene.runs_end().await;
    send(&scene).await;
    scene.observe(5).await;
    scene.rings("messages-failed", "CronboxMessagesFail");
    let message: uuid::Uuid =
        sqlx::query_scalar("SELECT id FROM notification_messages").fetch_one(&scene.pool).await.unwrap();
    channel.set(200);
    let variables = [("CHANNEL", id.to_string()), ("MESSAGE", message.to_string())];
    scene.walk("messages-failed", &variables).await.shows("410 Gone");
    send(&scene).await;
    assert_eq!(channel.calls(), 3, "the refused one, the test, and the retry");
    scene.observe(5).await;
    scene.silent("messages-failed", "CronboxMessagesFail");
    scene.end().await;
}
