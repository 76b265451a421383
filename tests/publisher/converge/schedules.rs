//! EventBridge's schedules follow the workflows.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use workflows::State;

use crate::world::{GROUP, World, at, name};

fn created() -> (String, u16) {
    ("POST".to_owned(), 200)
}

fn updated() -> (String, u16) {
    ("PUT".to_owned(), 200)
}

/// A schedule with our name that an operator could have created.
pub(crate) fn manual_schedule(cron: &str) -> Value {
    json!({
        "GroupName": GROUP, "ScheduleExpression": cron, "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {
            "Arn": "arn:aws:lambda:us-east-1:123456789012:function:other",
            "RoleArn": "arn:aws:iam::123456789012:role/other"
        },
    })
}

#[tokio::test]
async fn every_field_of_a_schedule_is_sent() {
    let world = World::new().await;
    let workflow = world.create("30 9 * * MON-FRI", "Europe/Paris").await;
    world.publish().await;

    let mut schedule = world.schedule(workflow).await.unwrap();
    let input: Value = serde_json::from_str(schedule["Target"]["Input"].as_str().unwrap()).unwrap();
    schedule["Target"]["Input"] = json!("see below");
    for its_own in ["Arn", "CreationDate", "LastModificationDate"] {
        schedule.as_object_mut().unwrap().remove(its_own);
    }
    assert_eq!(
        schedule,
        json!({
            "Name": name(workflow), "GroupName": GROUP, "State": "ENABLED",
            "ScheduleExpression": "cron(30 9 ? * MON-FRI *)", "ScheduleExpressionTimezone": "Europe/Paris",
            "FlexibleTimeWindow": {"Mode": "OFF"}, "ActionAfterCompletion": "NONE",
            "Description": world.description().await,
            "Target": {
                "Arn": "arn:aws:lambda:us-east-1:123456789012:function:runner",
                "RoleArn": "arn:aws:iam::123456789012:role/scheduler",
                "DeadLetterConfig": {"Arn": "arn:aws:sqs:us-east-1:123456789012:schedules-dlq"},
                "RetryPolicy": {"MaximumEventAgeInSeconds": 1800, "MaximumRetryAttempts": 5},
                "Input": "see below",
            },
        })
    );
    assert_eq!(
        input,
        json!({
            "workflow_id": workflow, "revision": 1, "template": 1,
            "scheduled_time": "<aws.scheduler.scheduled-time>", "execution_id": "<aws.scheduler.execution-id>",
            "attempt": "<aws.scheduler.attempt-number>", "schedule_arn": "<aws.scheduler.schedule-arn>",
        })
    );
}

/// If this fails without a change of the schedules, a release would publish every schedule again. A dependency may have
/// changed the order of JSON fields, or the format of dates.
#[tokio::test]
async fn the_hash_of_a_schedule_is_fixed() {
    let world = World::new().await;
    let identity =
        "INSERT INTO database_identity (uuid, environment) VALUES ('00000000-0000-4000-8000-000000000001', 'dev')";
    sqlx::query(identity).execute(&world.pool).await.unwrap();
    let mut tx = db::begin_transaction(&world.pool).await.unwrap();
    let fields = json!({
        "cron_schedule": "30 9 * * MON-FRI", "timezone": "Europe/Paris",
        "starts_at": "2026-03-03T10:00:00.5Z", "ends_at": "2027-03-02T10:00:00Z",
    });
    let workflow = world.create_in(&mut tx, fields).await;
    tx.commit().await.unwrap();
    world.publish().await;
    let hash = world.publication(workflow).await.spec_hash;
    assert_eq!(hash.as_deref(), Some("939cb1c30f5bd17441330274d6a6c757959c84207d605bab46b18e72bff3b585"));
}

#[tokio::test]
async fn creates_of_existing_schedules_become_updates() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.meddle(Method::POST, workflow, manual_schedule("cron(0 1 * * ? *)")).await;

    let report = world.publish().await;

    assert_eq!((report.created, report.updated), (0, 1));
    assert_eq!(world.calls(), [("POST".to_owned(), 409), ("GET".to_owned(), 200), updated()]);
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(0 9 * * ? *)"));
    world.assert_settled().await;
}

/// An update is one call. If the schedule has vanished, a create follows.
#[tokio::test]
async fn known_schedules_are_updated_or_recreated() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.publish().await;
    assert_eq!(world.calls(), [created()]);

    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    world.publish().await;
    assert_eq!(world.calls(), [updated()]);

    world.meddle(Method::DELETE, workflow, json!({})).await;
    world.patch(workflow, json!({"cron_schedule": "0 11 * * *"})).await;
    assert_eq!(world.publish().await.created, 1);
    assert_eq!(world.calls(), [("PUT".to_owned(), 404), created()]);
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(0 11 * * ? *)"));
}

#[tokio::test]
async fn edits_keep_paused_schedules_disabled() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.publish().await;

    world.set_state(workflow, State::Paused).await;
    world.publish().await;
    assert_eq!(world.schedule(workflow).await.unwrap()["State"], "DISABLED");

    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    world.publish().await;
    let schedule = world.schedule(workflow).await.unwrap();
    assert_eq!(
        (&schedule["State"], &schedule["ScheduleExpression"]),
        (&json!("DISABLED"), &json!("cron(0 10 * * ? *)"))
    );

    world.set_state(workflow, State::Active).await;
    world.publish().await;
    assert_eq!(world.schedule(workflow).await.unwrap()["State"], "ENABLED");
}

#[tokio::test]
async fn cleared_archived_deleted_workflows_have_no_schedule() {
    let world = World::new().await;
    let [cleared, archived, deleted] = [
        world.create("0 1 * * *", "UTC").await,
        world.create("0 2 * * *", "UTC").await,
        world.create("0 3 * * *", "UTC").await,
    ];
    world.publish().await;
    world.calls();

    world.patch(cleared, json!({"cron_schedule": null})).await;
    world.set_state(archived, State::Archived).await;
    world.delete(deleted).await;
    let report = world.publish().await;

    assert_eq!(report.deleted, 3);
    for workflow in [cleared, archived, deleted] {
        assert_eq!(world.schedule(workflow).await, None);
        let publication = world.publication(workflow).await;
        assert_eq!((publication.spec_hash.as_deref(), publication.schedule_name), (Some("none"), None));
        assert_eq!(publication.applied_revision, Some(publication.desired_revision));
    }
    let deletes: Vec<_> = world.calls().into_iter().filter(|(method, _)| method == "DELETE").collect();
    assert_eq!(deletes, vec![("DELETE".to_owned(), 200); 3]);
    world.assert_settled().await;
}

#[tokio::test]
async fn deletes_of_missing_schedules_succeed() {
    let world = World::new().await;
    let [known, unknown] = [world.create("0 9 * * *", "UTC").await, world.create("0 9 * * *", "UTC").await];
    world.publish().await;
    world.meddle(Method::DELETE, known, json!({})).await;
    world.delete(known).await;
    // Its cron was cleared before it was published, but the publisher cannot know that there is no schedule.
    let never = world.create("0 9 * * *", "UTC").await;
    world.patch(never, json!({"cron_schedule": null})).await;
    world.calls();

    assert_eq!(world.publish().await.deleted, 2);
    let deletes: Vec<_> = world.calls().into_iter().filter(|(method, _)| method == "DELETE").collect();
    assert_eq!(deletes, vec![("DELETE".to_owned(), 404); 2]);
    assert!(world.schedule(unknown).await.is_some());
    world.assert_settled().await;
}

#[tokio::test]
async fn orphan_cleanup_removes_the_fired_orphan() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.publish().await;
    world.delete(workflow).await;
    world.publish().await;
    // A late request creates the schedule again, long after its delete was settled.
    world.meddle(Method::POST, workflow, manual_schedule("cron(* * * * ? *)")).await;

    let mut tx = db::begin_transaction(&world.pool).await.unwrap();
    workflows::outbox::enqueue_orphan_cleanup(&mut tx, workflow, world.clock.now()).await.unwrap();
    tx.commit().await.unwrap();
    world.publish().await;

    assert_eq!(world.schedule(workflow).await, None);
    world.assert_settled().await;
}

#[tokio::test]
async fn windows_start_early_and_end_with_deletion() {
    let world = World::new().await;
    let mut tx = db::begin_transaction(&world.pool).await.unwrap();
    let fields = json!({
        "cron_schedule": "*/10 12 * * *", "starts_at": "2026-03-02T12:00:30Z", "ends_at": "2026-03-02T13:00:00.5Z"
    });
    let workflow = world.create_in(&mut tx, fields).await;
    tx.commit().await.unwrap();
    world.publish().await;
    let schedule = world.schedule(workflow).await.unwrap();
    assert_eq!(schedule["StartDate"].as_f64(), Some(at("2026-03-02T11:59:00Z").timestamp() as f64));
    assert_eq!(schedule["EndDate"].as_f64(), Some(at("2026-03-02T13:01:00Z").timestamp() as f64), "no fire is lost");

    // After the start has passed, the publisher no longer sends it. That does not cause a call.
    world.clock.set(at("2026-03-02T12:30:00Z"));
    world.calls();
    world.patch(workflow, json!({"timezone": "Africa/Abidjan"})).await;
    world.publish().await;
    world.patch(workflow, json!({"timezone": "UTC"})).await;
    world.publish().await;
    assert_eq!(world.calls(), [updated(), updated()]);
    let schedule = world.schedule(workflow).await.unwrap();
    assert_eq!(schedule.get("StartDate"), None);

    world.clock.set(at("2026-03-02T13:00:30Z"));
    // In the database, whose clock is the machine's, the end has passed long ago. So the delete waits for a minute.
    world.skip(Duration::from_secs(3600)).await;
    assert_eq!(world.publish().await.deleted, 1);
    assert_eq!(world.schedule(workflow).await, None);
    world.assert_settled().await;
}

#[tokio::test]
async fn an_unknown_timezone_keeps_the_last_schedule() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "Europe/Paris").await;
    world.publish().await;
    world.calls();
    let mut tx = db::begin_transaction(&world.pool).await.unwrap();
    sqlx::query("UPDATE workflows SET timezone = 'Mars/Phobos', revision = 2 WHERE id = $1")
        .bind(workflow.0)
        .execute(&mut *tx)
        .await
        .unwrap();
    sqlx::query("UPDATE publications SET desired_revision = 2, due_at = cronbox_now() WHERE workflow_id = $1")
        .bind(workflow.0)
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();

    assert_eq!(world.publish().await.failed, 1);

    let publication = world.publication(workflow).await;
    assert_eq!(publication.sync, "failed");
    let sentence = publication.last_error.unwrap();
    assert!(
        sentence.starts_with("the stored timezone cannot be read:") && sentence.contains("Mars/Phobos"),
        "{sentence}"
    );
    assert_eq!(world.calls(), []);
    assert_eq!(world.schedule(workflow).await.unwrap()["ScheduleExpressionTimezone"], "Europe/Paris");

    world.patch(workflow, json!({"timezone": "Europe/Berlin"})).await;
    world.publish().await;
    assert_eq!(world.publication(workflow).await.sync, "synced");
}
