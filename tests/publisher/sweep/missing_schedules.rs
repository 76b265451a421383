//! The sweep reads the expected schedules from `workflows`, and recreates missing ones, whatever their number.

use std::time::Duration;

use serde_json::json;

use super::SETTLED;
use crate::proxy::INVALID;
use crate::world::{World, name};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_missing_schedules_return_without_force() {
    let world = World::new().await;
    let workflows = world.in_step(60).await;
    for id in &workflows {
        world.remove(*id).await;
    }
    let found = world.sweep().await;
    assert_eq!((found.missing, found.repaired, found.changes_refused), (60, 60, 0), "{found:?}");
    world.publish().await;
    assert_eq!(world.existing(&workflows).await, 60);
    world.assert_settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_publications_hide_nothing_missing() {
    let world = World::new().await;
    let workflows = world.in_step(60).await;
    world.execute("DELETE FROM publications").await;
    world.remove(workflows[7]).await;
    let found = world.sweep().await;
    assert_eq!((found.missing, found.changed, found.changes_refused), (1, 0, 0), "{found:?}");
    world.front.take_calls();
    let report = world.publish().await;
    assert_eq!((report.created, report.updated), (1, 0), "what exists as wanted is adopted without a write");
    for id in &workflows {
        assert_eq!(world.publication(*id).await.sync, "synced");
    }
    assert_eq!(world.existing(&workflows).await, 60);
    world.assert_settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_workflow_without_schedule_is_missing() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.front.next(&name(workflow), [INVALID]);
    world.patch(workflow, json!({"cron_schedule": "30 17 * * *"})).await;
    world.publish().await;
    assert_eq!(world.publication(workflow).await.sync, "failed");
    world.remove(workflow).await;
    world.skip(SETTLED * 2).await;
    let found = world.sweep().await;
    assert_eq!((found.missing, found.repaired), (1, 1), "{found:?}");

    // It fails again. The sweep still reports it as missing, but does not retry it.
    world.front.next(&name(workflow), [INVALID]);
    world.publish().await;
    world.skip(SETTLED * 4).await;
    let found = world.sweep().await;
    assert_eq!((found.missing, found.repaired), (1, 0), "{found:?}");
    assert_eq!(world.publication(workflow).await.sync, "failed");
    let drift = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM publications WHERE drift = 'missing'");
    assert_eq!(drift.fetch_one(&world.pool).await.unwrap(), 1);

    world.patch(workflow, json!({"cron_schedule": "30 18 * * *"})).await;
    world.publish().await;
    assert_eq!(world.existing(&[workflow]).await, 1);
    world.skip(Duration::from_secs(3600)).await;
    assert_eq!(world.sweep().await.total_drift(), 0);
}
