//! The publisher against another emulator, moto.
//!
//! Known differences: a conflict is HTTP 400 with the type of a conflict; a missing group is HTTP 500.

use schedule::Clock;
use serde_json::json;
use tests::Moto;
use workflows::State;

use crate::world::{World, at, soon};

#[tokio::test]
async fn schedules_in_moto_follow_the_workflow() {
    let moto = Moto::start().await;
    let world = World::before(&moto.endpoint, None, Clock::fixed(at("2026-03-02T10:00:00Z"))).await;
    let workflow = world.create("30 9 * * MON-FRI", "Europe/Paris").await;

    world.publish().await;
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(30 9 ? * MON-FRI *)"));

    // Clears the record of the schedule, as every repair does: create, moto's 400 conflict, read, update.
    world.calls();
    sqlx::query("UPDATE publications SET spec_hash = NULL, schedule_name = NULL, due_at = cronbox_now()")
        .execute(&world.pool)
        .await
        .unwrap();
    assert_eq!(world.publish().await.updated, 1);
    let calls = [("POST", 400), ("GET", 200), ("PUT", 200)].map(|(method, status)| (method.to_owned(), status));
    assert_eq!(world.calls(), calls);

    world.set_state(workflow, State::Paused).await;
    world.publish().await;
    assert_eq!(world.schedule(workflow).await.unwrap()["State"], "DISABLED");

    // The published schedule reads back as the desired one.
    sqlx::query("UPDATE publications SET spec_hash = NULL, verify_at = cronbox_now(), due_at = cronbox_now()")
        .execute(&world.pool)
        .await
        .unwrap();
    world.calls();
    assert_eq!(world.publish().await.unchanged, 1);
    assert_eq!(world.calls(), [("GET".to_owned(), 200)]);

    world.patch(workflow, json!({"cron_schedule": null})).await;
    assert_eq!(world.publish().await.deleted, 1);
    assert_eq!(world.schedule(workflow).await, None);
    world.assert_settled().await;
}

/// moto answers with an internal error, which is transient.
#[tokio::test]
async fn a_missing_group_in_moto_is_retried() {
    let moto = Moto::start().await;
    let world = World::before(&moto.endpoint, None, Clock::fixed(at("2026-03-02T10:00:00Z"))).await;
    world.freeze_clock().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    let config = publisher::Config { schedule_group: "nowhere".to_owned(), ..world.config() };
    assert_eq!(world.publisher_with(config).await.drain_outbox(soon()).await.unwrap().retried, 1);
    assert_eq!(world.publication(workflow).await.error_class.as_deref(), Some("transient"));
}
