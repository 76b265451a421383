//! An operator's mistake fails no workflow. After it is corrected, all workflows are published without further action.

use std::time::Duration;

use publisher::{Config, Publisher};
use reqwest::Method;
use schedule::WorkflowId;
use serde_json::json;

use crate::proxy::{Answer, INVALID, NO_ROLE, STRANGE};
use crate::world::{World, name, soon};

const HOUR: Duration = Duration::from_secs(3600);

async fn published(world: &World, count: usize) -> Vec<WorkflowId> {
    let mut workflows = Vec::new();
    for _ in 0..count {
        workflows.push(world.create("0 9 * * *", "UTC").await);
    }
    world.publish().await;
    workflows
}

async fn edit_all(world: &World, workflows: &[WorkflowId], cron: &str) {
    for workflow in workflows {
        world.patch(*workflow, json!({"cron_schedule": cron})).await;
    }
}

async fn drain_for_hours(world: &World, publisher: &Publisher, hours: std::ops::Range<u32>) -> u64 {
    let mut failed = 0;
    for hour in hours {
        world.skip(HOUR * hour).await;
        failed += publisher.drain_outbox(soon()).await.unwrap().failed;
    }
    failed
}

/// Each setting that a deployment can get wrong, with AWS's error message for it.
#[tokio::test]
async fn a_wrong_setting_fails_no_workflow() {
    let right = World::new().await.config();
    let wrong = [
        Config { scheduler_role_arn: "arn:aws:iam::12345678901:role/x".to_owned(), ..right.clone() },
        Config { runner_lambda_arn: "no-arn".to_owned(), ..right.clone() },
        Config { schedule_dlq_arn: "arn:aws:sqs:us-east-1:123456789012:x.fifo".to_owned(), ..right.clone() },
        Config { schedule_group: "no group".to_owned(), ..right },
    ];
    for wrong in wrong {
        let world = World::new().await;
        let workflows = published(&world, 6).await;
        edit_all(&world, &workflows, "0 10 * * *").await;
        let publisher = world.publisher_with(Config { api_concurrency: 1, ..wrong.clone() }).await;

        let report = publisher.drain_outbox(soon()).await.unwrap();

        assert_eq!((report.failed, report.retried), (0, 3), "three refusals stop the drain: {wrong:?}");
        assert_eq!(drain_for_hours(&world, &publisher, 1..15).await, 0, "{wrong:?}");
        let publication = world.publication(workflows[0]).await;
        assert_eq!((publication.sync.as_str(), publication.attempt_count), ("pending", 0), "{wrong:?}");

        world.skip(HOUR * 15).await;
        world.publish().await;
        for workflow in &workflows {
            assert_eq!(world.expression(*workflow).await.as_deref(), Some("cron(0 10 * * ? *)"), "{wrong:?}");
            assert_eq!(world.publication(*workflow).await.sync, "synced");
        }
        world.assert_settled().await;
    }
}

/// The role's ARN is valid, but the role is missing or does not trust Scheduler.
#[tokio::test]
async fn a_missing_role_fails_no_workflow() {
    let world = World::new().await;
    let workflows = published(&world, 6).await;
    edit_all(&world, &workflows, "0 10 * * *").await;
    world.plan_faults(json!({"faults": [{"kind": "assume_role", "chance": 1.0}]})).await;
    let publisher = world.publisher_with(Config { api_concurrency: 1, ..world.config() }).await;

    let report = publisher.drain_outbox(soon()).await.unwrap();

    assert_eq!((report.failed, report.retried), (0, 3), "three refusals stop the drain");
    assert_eq!(drain_for_hours(&world, &publisher, 1..15).await, 0);
    let publication = world.publication(workflows[0]).await;
    assert_eq!((publication.sync.as_str(), publication.error_class.as_deref()), ("pending", Some("environment")));

    world.plan_faults(json!({})).await;
    world.skip(HOUR * 15).await;
    world.publish().await;
    for workflow in &workflows {
        assert_eq!(world.expression(*workflow).await.as_deref(), Some("cron(0 10 * * ? *)"));
    }
    world.assert_settled().await;
}

/// IAM is still propagating a role, so one workflow is refused while another one succeeds.
#[tokio::test]
async fn a_spreading_role_fails_no_workflow() {
    let world = World::new().await;
    let workflows = published(&world, 2).await;
    let [refused, other] = workflows[..] else { panic!() };
    edit_all(&world, &[refused], "0 10 * * *").await;
    world.front.always(&name(refused), Some(NO_ROLE));
    let publisher = world.publisher().await;
    for hour in 1..=5 {
        edit_all(&world, &[other], &format!("0 1{hour} * * *")).await;
        let report = publisher.drain_outbox(soon()).await.unwrap();
        assert_eq!((report.failed, report.updated), (0, 1), "{report:?}");
        world.skip(HOUR * hour).await;
    }
    world.front.always(&name(refused), None);
    publisher.drain_outbox(soon()).await.unwrap();
    assert_eq!(world.expression(refused).await.as_deref(), Some("cron(0 10 * * ? *)"));
    world.assert_settled().await;
}

/// A page from a proxy says nothing about a schedule, whether one workflow gets it or all of them.
#[tokio::test]
async fn a_proxy_s_page_fails_no_workflow() {
    for (count, status) in [(1, 404), (5, 404), (2, 302), (4, 400)] {
        let world = World::new().await;
        let workflows = published(&world, count).await;
        edit_all(&world, &workflows, "0 10 * * *").await;
        for workflow in &workflows {
            world.front.always(&name(*workflow), Some(Answer::Page(status)));
        }
        let publisher = world.publisher().await;
        assert_eq!(drain_for_hours(&world, &publisher, 0..25).await, 0, "{count} workflows, {status}");

        for workflow in &workflows {
            world.front.always(&name(*workflow), None);
        }
        world.skip(HOUR * 25).await;
        publisher.drain_outbox(soon()).await.unwrap();
        for workflow in &workflows {
            assert_eq!(world.publication(*workflow).await.sync, "synced");
        }
        world.assert_settled().await;
    }
}

/// Three workflows get an answer that is not classified, and no call succeeds in between.
#[tokio::test]
async fn a_strange_answer_for_all_fails_none() {
    let world = World::new().await;
    let workflows = published(&world, 5).await;
    edit_all(&world, &workflows, "0 10 * * *").await;
    for workflow in &workflows {
        world.front.always(&name(*workflow), Some(STRANGE));
    }
    let publisher = world.publisher().await;
    assert_eq!(drain_for_hours(&world, &publisher, 0..25).await, 0);

    for workflow in &workflows {
        world.front.always(&name(*workflow), None);
    }
    world.skip(HOUR * 25).await;
    publisher.drain_outbox(soon()).await.unwrap();
    for workflow in &workflows {
        assert_eq!(world.publication(*workflow).await.sync, "synced");
    }
}

/// While a group is being deleted, its schedules fire, and EventBridge refuses every change in it.
#[tokio::test]
async fn a_deleted_group_fails_no_workflow() {
    let world = World::new().await;
    world.freeze_clock().await;
    let workflows = published(&world, 3).await;
    let [edited, deleted, untouched] = workflows[..] else { panic!() };
    world.plan_faults(json!({"group_delete_secs": 24 * 3600})).await;
    world.meddle_with_group(Method::DELETE).await;

    world.patch(edited, json!({"cron_schedule": "0 10 * * *"})).await;
    world.delete(deleted).await;
    let new = world.create("0 11 * * *", "UTC").await;
    let publisher = world.publisher().await;
    let report = publisher.drain_outbox(soon()).await.unwrap();
    assert_eq!((report.failed, report.retried), (0, 3), "{report:?}");
    for workflow in [edited, deleted, new] {
        assert_eq!(world.publication(workflow).await.error_class.as_deref(), Some("transient"));
    }
    world.fire_until("2026-03-03T09:30:00Z").await;
    assert_eq!(world.dead_letters().await, 3, "each of the old schedules still fires");

    world.fire_until("2026-03-03T10:00:00Z").await;
    assert_eq!(drain_for_hours(&world, &publisher, 1..15).await, 0, "a missing group fails no workflow");
    assert_eq!(world.publication(edited).await.error_class.as_deref(), Some("environment"));
    world.fire_until("2026-03-04T12:00:00Z").await;
    assert_eq!(world.dead_letters().await, 3, "nothing exists that could fire");

    world.meddle_with_group(Method::POST).await;
    world.skip(HOUR * 15).await;
    world.publish().await;
    world.sweep().await;
    world.publish().await;
    for (workflow, cron) in
        [(edited, "cron(0 10 * * ? *)"), (new, "cron(0 11 * * ? *)"), (untouched, "cron(0 9 * * ? *)")]
    {
        assert_eq!(world.expression(workflow).await.as_deref(), Some(cron));
        assert_eq!(world.publication(workflow).await.sync, "synced");
    }
    assert_eq!(world.schedule(deleted).await, None);
    world.assert_settled().await;
}

/// A refusal applies to the refused schedule. If the desired schedule changes, the publisher tries again.
#[tokio::test]
async fn a_changed_setting_revives_failed_workflows() {
    let world = World::new().await;
    let [refused, discarded] = [world.create("0 9 * * *", "UTC").await, world.create("0 8 * * *", "UTC").await];
    for workflow in [refused, discarded] {
        world.front.next(&name(workflow), [INVALID]);
    }
    assert_eq!(world.publish().await.failed, 2);
    assert_eq!(world.publish().await.created, 0, "the same is not tried again");
    let discard = "UPDATE outbox_events SET processed_on = cronbox_now() WHERE aggregate_id = $1";
    sqlx::query(discard).bind(discarded.0).execute(&world.pool).await.unwrap();

    let runner = "arn:aws:lambda:us-east-1:123456789012:function:another".to_owned();
    let publisher = world.publisher_with(Config { runner_lambda_arn: runner, ..world.config() }).await;
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().created, 1);

    assert_eq!(world.publication(refused).await.sync, "synced");
    assert_eq!(world.publication(discarded).await.sync, "failed", "an operator gave it up");
    world.assert_settled().await;
}
