//! A denial is either the workflow's fault or the environment's. Other denials and successes decide which.

use std::time::Duration;

use serde_json::json;

use crate::proxy::DENIED;
use crate::world::{World, name, soon};

/// A workflow is denied, and an edit makes the denial irrelevant. It must not count when another workflow is denied.
#[tokio::test]
async fn a_settled_denial_is_forgotten() {
    let world = World::new().await;
    world.freeze_clock().await;
    let [first, second, other] = [
        world.create("0 1 * * *", "UTC").await,
        world.create("0 2 * * *", "UTC").await,
        world.create("0 3 * * *", "UTC").await,
    ];
    let publisher = world.publisher().await;
    publisher.drain_outbox(soon()).await.unwrap();
    world.front.next(&name(first), [DENIED]);
    world.patch(first, json!({"cron_schedule": "30 1 * * *"})).await;
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().retried, 1);
    world.patch(first, json!({"cron_schedule": "0 1 * * *"})).await;
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().unchanged, 1, "no call is needed");

    world.front.always(&name(second), Some(DENIED));
    world.patch(second, json!({"cron_schedule": "30 2 * * *"})).await;
    let mut failed = 0;
    for round in 1..=6 {
        failed += publisher.drain_outbox(soon()).await.unwrap().failed;
        world.patch(other, json!({"cron_schedule": format!("{round} 3 * * *")})).await;
        failed += publisher.drain_outbox(soon()).await.unwrap().failed;
        world.skip(Duration::from_secs(1000 * round)).await;
    }

    assert_eq!(failed, 1);
    assert_eq!(world.publication(second).await.sync, "failed");
}

/// Without `iam:PassRole`, deletes succeed and creates fail. That is not the fault of a workflow.
#[tokio::test]
async fn successful_deletes_prove_no_create() {
    let world = World::new().await;
    let denied = world.create("0 9 * * *", "UTC").await;
    world.front.always(&name(denied), Some(DENIED));
    let mut cleared = Vec::new();
    for _ in 0..4 {
        cleared.push(world.create("0 9 * * *", "UTC").await);
    }
    let publisher = world.publisher().await;
    publisher.drain_outbox(soon()).await.unwrap();
    for (round, cleared) in (1..).zip(&cleared) {
        world.patch(*cleared, json!({"cron_schedule": null})).await;
        world.skip(Duration::from_secs(1000 * round)).await;
        let report = publisher.drain_outbox(soon()).await.unwrap();
        assert_eq!((report.deleted, report.failed), (1, 0), "round {round}");
    }
    assert_eq!(world.publication(denied).await.error_class.as_deref(), Some("environment"));

    // Another create succeeds, so the denial is this workflow's own fault.
    world.create("0 8 * * *", "UTC").await;
    let mut failed = publisher.drain_outbox(soon()).await.unwrap().failed;
    world.skip(Duration::from_secs(9000)).await;
    failed += publisher.drain_outbox(soon()).await.unwrap().failed;
    assert_eq!(failed, 1);
}
