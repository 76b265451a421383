//! Schedules with the identity of another database are neither deleted nor overwritten.

use std::time::Duration;

use serde_json::json;
use workflows::State;

use super::SETTLED;
use crate::world::{World, name};

const MINUTE: Duration = Duration::from_secs(60);
const ANOTHER: &str = "cronbox 11111111-2222-4333-8444-555555555555";
/// A database with the same environment, group and workflows, which has published nothing.
const ANOTHER_DATABASE: &str = "DELETE FROM publications; DELETE FROM outbox_events;
    UPDATE database_identity SET uuid = gen_random_uuid()";
const OLDER: &str = "Published by cronbox; changes made here are undone";

/// For an empty database with the same environment and group, all schedules are orphans.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_database_deletes_no_schedules() {
    let world = World::new().await;
    let workflows = world.in_step(9).await;
    world
        .execute(
            "SET session_replication_role = replica; DELETE FROM workflows; RESET session_replication_role;
             DELETE FROM publications; DELETE FROM outbox_events; DELETE FROM sweeps; DELETE FROM database_identity",
        )
        .await;
    let found = world.sweep().await;
    assert_eq!((found.orphan, found.orphans_waiting), (9, 9), "{found:?}");
    world.skip(SETTLED + MINUTE * 12).await;
    let found = world.force_sweep().await;
    assert_eq!((found.orphans_foreign, found.orphans_deleted), (9, 0), "{found:?}");
    world.publish().await;
    assert_eq!(world.existing(&workflows).await, 9);
    // They do not count as waiting orphans, either.
    world.skip(SETTLED + MINUTE * 24).await;
    let found = world.force_sweep().await;
    assert_eq!((found.orphans_waiting, found.orphans_refused, found.orphans_deleted), (0, 0, 0), "{found:?}");
}

/// Three refusals stop the drain and raise the alarm. After the schedules are gone, all workflows are published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_schedules_are_not_overwritten() {
    let world = World::new().await;
    let workflows = world.in_step(3).await;
    world.execute(ANOTHER_DATABASE).await;
    for id in &workflows {
        world.patch(*id, json!({"cron_schedule": "0 17 * * *"})).await;
    }
    let report = world.publish().await;
    assert_eq!((report.retried, report.failed, report.updated), (3, 0, 0), "{report:?}");
    assert!(world.front.take_calls().iter().all(|call| ["GET", "POST"].contains(&call.method.as_str())));
    for (minute, id) in workflows.iter().enumerate() {
        assert_eq!(world.expression(*id).await.unwrap(), format!("cron({minute} 9 * * ? *)"));
        let publication = world.publication(*id).await;
        assert_eq!((publication.sync.as_str(), publication.error_class.as_deref()), ("pending", Some("environment")));
        assert!(publication.last_error.unwrap().starts_with(&format!("{} has the identity ", name(*id))));
        world.remove(*id).await;
    }
    world.skip(MINUTE * 60).await;
    assert_eq!(world.publish().await.created, 3);
    for id in &workflows {
        assert_eq!(world.expression(*id).await.unwrap(), "cron(0 17 * * ? *)");
    }
    world.assert_settled().await;
}

/// The publisher verifies a request without an answer later. A schedule that another database has made since must
/// remain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_passes_overwrite_no_foreign_schedule() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.change(workflow, json!({"Description": ANOTHER, "ScheduleExpression": "cron(0 1 * * ? *)"})).await;
    world.freeze_clock().await;
    world.execute("UPDATE publications SET verify_at = cronbox_now(), due_at = cronbox_now()").await;
    let report = world.publish().await;
    assert_eq!((report.retried, report.failed, report.updated), (1, 0, 0), "{report:?}");
    assert_eq!(world.expression(workflow).await.unwrap(), "cron(0 1 * * ? *)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archived_workflow_deletes_no_foreign_schedule() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.change(workflow, json!({"Description": ANOTHER})).await;
    world.set_state(workflow, State::Archived).await;
    assert_eq!(world.publish().await.failed, 1);
    assert_eq!(world.existing(&[workflow]).await, 1);
    let publication = world.publication(workflow).await;
    assert_eq!(publication.sync, "failed");
    assert!(publication.last_error.unwrap().contains("another database"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orphan_without_identity_is_deleted() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.make_like(workflow, "wf-4711-dev").await;
    world.change(schedule::WorkflowId(4711), json!({"Description": OLDER})).await;
    world.sweep().await;
    world.publish().await;
    assert!(world.exists("wf-4711-dev").await);
    world.skip(SETTLED + MINUTE * 12).await;
    assert_eq!(world.sweep().await.orphans_deleted, 1);
    world.publish().await;
    assert!(!world.exists("wf-4711-dev").await);
}

/// A schedule that could not be read is not deleted; the next sweep tries again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_orphan_waits() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.make_like(workflow, "wf-4711-dev").await;
    world.sweep().await;
    world.skip(SETTLED + MINUTE * 12).await;
    world.front.next("wf-4711-dev", [crate::proxy::DENIED]);
    assert_eq!(world.sweep().await.orphans_deleted, 0);
    assert_eq!(world.sweep().await.orphans_deleted, 1);
    assert!(world.exists(&name(workflow)).await);
}
