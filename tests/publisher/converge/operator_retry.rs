//! An operator's retry during the publisher's calls.

use schedule::WorkflowId;
use serde_json::json;
use workflows::audit::Edit;
use workflows::outbox::operate::{self, Operated};

use crate::proxy::INVALID;
use crate::world::{World, name, soon};

async fn row_of(world: &World, workflow: WorkflowId) -> i64 {
    let id = sqlx::query_scalar("SELECT MAX(id) FROM outbox_events WHERE aggregate_id = $1").bind(workflow.0);
    id.fetch_one(&world.pool).await.unwrap()
}

async fn retry(world: &World, id: i64) -> Operated {
    let edit = Edit::without_request("operator", world.clock.now());
    let mut tx = db::begin_transaction(&world.pool).await.unwrap();
    let operated = operate::retry_row(&mut tx, id, &edit).await.unwrap();
    tx.commit().await.unwrap();
    operated
}

#[tokio::test]
async fn a_retry_always_calls_eventbridge() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.next(&name(workflow), [INVALID]);
    assert_eq!(world.publish().await.failed, 1);

    assert!(matches!(retry(&world, row_of(&world, workflow).await).await, Operated::Done(_)));

    assert_eq!(world.publish().await.created, 1);
    assert_eq!(world.outbox(workflow).await, (1, 0, 0));
    assert_eq!(world.publication(workflow).await.sync, "synced");
    world.assert_settled().await;
}

/// The refused call began before the retry, so it says nothing about what the operator has corrected.
#[tokio::test]
async fn a_retry_outlives_a_refusal_in_flight() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.next(&name(workflow), [INVALID]);
    world.front.delay(&name(workflow));
    let publisher = world.publisher().await;
    let drain = tokio::spawn(async move { publisher.drain_outbox(soon()).await.unwrap() });
    world.front.arrival(&name(workflow)).await;
    retry(&world, row_of(&world, workflow).await).await;
    world.front.release();

    let report = drain.await.unwrap();
    assert_eq!((report.failed, report.created), (1, 1), "{report:?}");
    assert_eq!(world.outbox(workflow).await, (1, 0, 0));
    assert_eq!(world.publication(workflow).await.sync, "synced");
    world.assert_settled().await;
}

/// Every repair makes a call after its request, whatever was known before.
#[tokio::test]
async fn a_retry_during_a_call_calls_again() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    for (minute, first) in [(0, "POST"), (1, "PUT")] {
        world.patch(workflow, json!({"cron_schedule": format!("{minute} 9 * * *")})).await;
        world.front.delay(&name(workflow));
        let publisher = world.publisher().await;
        let drain = tokio::spawn(async move { publisher.drain_outbox(soon()).await.unwrap() });
        world.front.arrival(&name(workflow)).await;
        assert!(matches!(retry(&world, row_of(&world, workflow).await).await, Operated::Done(_)));
        world.calls();
        world.front.release();
        drain.await.unwrap();

        let publication = world.publication(workflow).await;
        assert_eq!((publication.sync.as_str(), publication.due_in_secs), ("synced", None));
        assert_eq!(world.calls(), [(first.to_owned(), 200), ("PUT".to_owned(), 200)]);
        world.assert_settled().await;
    }
}
