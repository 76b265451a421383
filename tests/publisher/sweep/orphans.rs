//! Schedules without a workflow are deleted late, few at a time, and only if they are ours.

use std::time::Duration;

use serde_json::json;

use super::SETTLED;
use crate::world::World;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orphan_is_deleted_ten_minutes_later() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.make_like(workflow, "wf-4711-dev").await;
    let sweep_at = async |minutes: u32| {
        world.skip(SETTLED + MINUTE * minutes).await;
        let found = world.sweep().await;
        world.publish().await;
        (found.orphan, found.orphans_waiting, found.orphans_deleted, world.exists("wf-4711-dev").await)
    };
    assert_eq!(sweep_at(0).await, (1, 1, 0, true));
    assert_eq!(sweep_at(9).await, (1, 1, 0, true));
    assert_eq!(sweep_at(11).await, (1, 0, 1, false));
    assert_eq!(sweep_at(12).await, (0, 0, 0, false));
    world.assert_settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn returned_orphans_count_as_new() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.make_like(workflow, "wf-4711-dev").await;
    world.sweep().await;
    world.meddle(reqwest::Method::DELETE, schedule::WorkflowId(4711), json!({})).await;
    world.skip(MINUTE * 12).await;
    assert_eq!(world.sweep().await.orphan, 0);
    world.make_like(workflow, "wf-4711-dev").await;
    world.skip(MINUTE * 13).await;
    let found = world.sweep().await;
    assert_eq!((found.orphans_waiting, found.orphans_deleted), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_with_foreign_names_stay() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    let strangers = ["wf-4711-prod", "wf-4711-dev-x", "wf-04711-dev", "WF-4711-dev", "nightly"];
    for stranger in strangers {
        world.make_like(workflow, stranger).await;
    }
    for minutes in [0, 11, 22] {
        world.skip(SETTLED + MINUTE * minutes).await;
        let found = world.sweep().await;
        assert_eq!((found.foreign, found.total_drift()), (5, 0), "{found:?}");
        world.publish().await;
    }
    for stranger in strangers {
        assert!(world.exists(stranger).await, "{stranger}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eleven_orphans_are_deleted_by_force_only() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    for id in 1001..=1011 {
        world.make_like(workflow, &format!("wf-{id}-dev")).await;
    }
    world.sweep().await;
    world.skip(MINUTE * 15).await;
    let found = world.sweep().await;
    assert_eq!((found.orphans_refused, found.orphans_deleted), (11, 0));
    world.publish().await;
    assert!(world.exists("wf-1001-dev").await);

    sqlx::query("INSERT INTO sweeps (requested_by, force, requested_on) VALUES ('key:x', TRUE, cronbox_now())")
        .execute(&world.pool)
        .await
        .unwrap();
    let found = world.sweep().await;
    assert_eq!((found.orphans_refused, found.orphans_deleted), (0, 11));
    world.publish().await;
    for id in 1001..=1011 {
        assert!(!world.exists(&format!("wf-{id}-dev")).await);
    }
    assert!(world.schedule(workflow).await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_orphans_are_no_mass() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    for id in 1001..=1010 {
        world.make_like(workflow, &format!("wf-{id}-dev")).await;
    }
    world.sweep().await;
    world.skip(MINUTE * 15).await;
    assert_eq!(world.sweep().await.orphans_deleted, 10);
}

/// 5 % of 2,061 schedules would be 103.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_orphans_are_the_most() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.put_like(workflow, (1001..=1101).map(|id| format!("wf-{id}-dev")));
    assert_eq!(world.sweep().await.orphans_waiting, 101);
    // The sweep sees these for the first time 15 minutes later. They raise the total, but may not be deleted yet.
    world.put_like(workflow, (2001..=3959).map(|id| format!("wf-{id}-dev")));
    world.skip(SETTLED + MINUTE * 15).await;
    let found = world.sweep().await;
    assert_eq!((found.listed, found.orphans_waiting), (2061, 1959), "{found:?}");
    assert_eq!((found.orphans_refused, found.orphans_deleted), (101, 0), "{found:?}");

    world.meddle(reqwest::Method::DELETE, schedule::WorkflowId(1101), json!({})).await;
    world.skip(SETTLED + MINUTE * 20).await;
    let found = world.sweep().await;
    assert_eq!((found.orphans_refused, found.orphans_deleted), (0, 100), "{found:?}");
}
