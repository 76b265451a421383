//! Schedules that carry another database's identity are never deleted.

use std::time::Duration;

use app::workflows::State;
use serde_json::json;

use super::SETTLED;
use crate::world::{World, name};

const MINUTE: Duration = Duration::from_secs(60);
const ANOTHER: &str = "cronbox 11111111-2222-4333-8444-555555555555";
const OLDER: &str = "Published by cronbox; changes made here are undone";

/// An empty database with the same environment and group finds only orphans.
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
    // They are no backlog either.
    world.skip(SETTLED + MINUTE * 24).await;
    let found = world.force_sweep().await;
    assert_eq!((found.orphans_waiting, found.orphans_refused, found.orphans_deleted), (0, 0, 0), "{found:?}");
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
    assert!(world.stands("wf-4711-dev").await);
    world.skip(SETTLED + MINUTE * 12).await;
    assert_eq!(world.sweep().await.orphans_deleted, 1);
    world.publish().await;
    assert!(!world.stands("wf-4711-dev").await);
}

/// What could not be read is not deleted; the next sweep tries again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_orphan_waits() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.make_like(workflow, "wf-4711-dev").await;
    world.sweep().await;
    world.skip(SETTLED + MINUTE * 12).await;
    world.front.next("wf-4711-dev", [crate::front::DENIED]);
    assert_eq!(world.sweep().await.orphans_deleted, 0);
    assert_eq!(world.sweep().await.orphans_deleted, 1);
    assert!(world.stands(&name(workflow)).await);
}
