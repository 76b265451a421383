//! From an edit to a run: the outbox row, the publisher, the schedule, the fire, the runner.

use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::Story;
use workflows::{lock_workflow, save_workflow};

#[tokio::test]
async fn workflows_run_at_their_cron_times() {
    let s = Story::at("2026-03-27T12:00:00Z").await;
    let wf = s.create("0 9 * * *", "Europe/Paris").await;
    let read = s.workflow(wf).await;
    assert_eq!(read["sync"]["status"], "pending");
    assert_eq!(read["next_fire_at"], "2026-03-28T08:00:00Z");

    s.publish().await;
    assert_eq!(s.workflow(wf).await["sync"]["status"], "synced");
    assert_eq!(s.schedule(wf), "cron(0 9 * * ? *) Europe/Paris ENABLED");

    // Across the change to summer time: 09:00 in Paris is 08:00Z, then 07:00Z.
    s.clock_to("2026-03-29T07:01:00Z").await;
    assert_eq!(s.runs(wf).await, "2026-03-28T08:00Z schedule succeeded\n2026-03-29T07:00Z schedule succeeded");
    assert_eq!(s.occurrences(wf).await, "2026-03-28T08:00Z fired\n2026-03-29T07:00Z fired");
    s.end().await;
}

/// The three edits create, update and clear the cron.
#[tokio::test]
async fn each_timing_edit_enqueues_one_row() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.edit(wf, json!({"cron_schedule": "0 10 * * *"})).await;
    s.editor().merge_patch(&format!("/api/v1/workflows/{wf}"), &json!({"cron_schedule": null})).await.expect(200);
    let rows = s.outbox(wf).await;
    let reply: Vec<_> = rows.iter().map(|row| (row.op.as_str(), row.payload["cron_schedule"].clone())).collect();
    assert_eq!(reply, [("upsert", json!("0 9 * * *")), ("upsert", json!("0 10 * * *")), ("delete", Value::Null)]);
    for (row, revision) in rows.iter().zip(1..) {
        assert_eq!(row.payload["revision"], revision);
        let keys: Vec<_> = row.payload.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["cron_schedule", "is_api", "revision", "team_id", "timezone", "traceparent"]);
    }
    s.publish().await;
    assert_eq!(s.schedule(wf), "none");
    s.end().await;
}

#[tokio::test]
async fn rolled_back_edits_enqueue_nothing() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    let mut tx = db::begin_transaction(&s.pool).await.unwrap();
    let before = lock_workflow(&mut tx, wf, None, s.clock.now()).await.unwrap().unwrap();
    let mut next = before.clone();
    next.spec.timing.cron = Some("0 10 * * *".to_owned());
    let edit = workflows::audit::Edit::without_request("test", s.clock.now());
    let saved = save_workflow(&mut tx, &before, next, "update", &edit).await.unwrap();
    assert!(matches!(saved, workflows::Saved::Enqueued(_)), "{saved:?}");
    tx.rollback().await.unwrap();
    assert_eq!(s.outbox(wf).await.len(), 1);
    let read = s.workflow(wf).await;
    assert_eq!((&read["revision"], &read["sync"]["desired_revision"]), (&json!(1), &json!(1)));
    s.end().await;
}

/// The call has the state after the last edit.
#[tokio::test]
async fn ten_edits_are_published_by_one_call() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    for minute in 1..=10 {
        s.edit(wf, json!({ "cron_schedule": format!("{minute} 9 * * *") })).await;
    }
    let report = s.publish().await;
    assert_eq!((report.processed, report.created, report.updated), (11, 1, 0));
    assert_eq!(report.coalesced, 10);
    assert_eq!(s.schedule(wf), "cron(10 9 * * ? *) UTC ENABLED");
    s.end().await;
}

#[tokio::test]
async fn paused_workflows_run_only_after_resume() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let wf = s.create("0 * * * *", "UTC").await;
    s.publish().await;
    s.editor().post(&format!("/api/v1/workflows/{wf}:pause"), &json!({"reason": "audit"})).await.expect(200);
    // EventBridge does not know of the pause yet, so it fires, and the app refuses.
    s.clock_to("2026-03-02T09:00:30Z").await;
    assert_eq!(s.runs(wf).await, "");
    s.publish().await;
    assert_eq!(s.schedule(wf), "cron(0 * * * ? *) UTC DISABLED");
    s.clock_to("2026-03-02T10:30:00Z").await;
    s.editor().post_empty(&format!("/api/v1/workflows/{wf}:resume")).await.expect(200);
    s.publish().await;
    s.clock_to("2026-03-02T11:00:30Z").await;
    assert_eq!(s.runs(wf).await, "2026-03-02T11:00Z schedule succeeded");
    s.end().await;
}

/// Its schedule and its versions are deleted, a job removes its runs; the audit log keeps the deletion.
#[tokio::test]
async fn deleted_workflows_leave_only_a_tombstone() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let wf = s.create("0 * * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T09:00:30Z").await;
    s.admin().delete(&format!("/api/v1/workflows/{wf}")).await.expect(204);
    s.editor().get(&format!("/api/v1/workflows/{wf}")).await.expect(404);
    s.publish().await;
    assert_eq!(s.schedule(wf), "none");
    assert_eq!(s.count("SELECT count(*) FROM schedule_versions").await, 0);
    assert_eq!(s.count("SELECT count(*) FROM deleted_workflows").await, 1);
    s.job("prune").await;
    let rows = "SELECT (SELECT count(*) FROM runs) + (SELECT count(*) FROM occurrences) + (SELECT count(*) FROM deleted_workflows)";
    assert_eq!(s.count(rows).await, 0);
    assert_eq!(s.count("SELECT count(*) FROM publications").await, 1);
    assert!(s.count("SELECT count(*) FROM audit_log WHERE verb = 'delete'").await == 1);
    s.end().await;
}

#[tokio::test]
async fn writes_with_wait_answer_once_synced() {
    let s = Story::with_daemon().await;
    let body = json!({"name": "w", "cron_schedule": "0 9 * * *", "action": {"type": "log", "message": "hi"}});
    let made = s.editor().post("/api/v1/workflows?wait=25", &body).await.expect(201);
    assert_eq!(made.json["sync"]["status"], "synced");
    assert_eq!(s.schedule(WorkflowId(made.id())), "cron(0 9 * * ? *) UTC ENABLED");
    let path = format!("/api/v1/workflows/{}?wait=25", made.id());
    let read = s.editor().patch(&path, &json!({"cron_schedule": "0 10 * * *"})).await.expect(200).json;
    assert_eq!((&read["sync"]["status"], &read["sync"]["applied_revision"]), (&json!("synced"), &json!(2)));
    s.admin().delete(&path).await.expect(204);
    assert_eq!(s.schedule(WorkflowId(made.id())), "none");
    s.end().await;
}

#[tokio::test]
async fn the_audit_log_cannot_be_changed() {
    let s = Story::today().await;
    s.create("0 9 * * *", "UTC").await;
    let entries = s.count("SELECT count(*) FROM audit_log").await;
    assert!(entries > 0);
    for change in ["UPDATE audit_log SET actor = 'x'", "DELETE FROM audit_log", "TRUNCATE audit_log"] {
        let refused = sqlx::query(change).execute(&s.pool).await.expect_err(change);
        assert!(refused.to_string().contains("audit_log is append-only"), "{change}: {refused}");
    }
    assert_eq!(s.count("SELECT count(*) FROM audit_log").await, entries);
    s.end().await;
}
