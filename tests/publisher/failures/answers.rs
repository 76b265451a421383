//! Each kind of answer from EventBridge, and what happens to the workflow.

use std::time::Duration;

use aws_sdk_scheduler::config::timeout::TimeoutConfig;
use serde_json::json;

use crate::proxy::{Answer, DENIED, INVALID, NO_ROLE, STRANGE, THROTTLED};
use crate::world::{World, at, name, soon};

#[tokio::test]
async fn throttling_backs_off_and_counts_no_attempt() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.always(&name(workflow), Some(THROTTLED));
    let publisher = world.publisher().await;
    for round in 1..=15_u32 {
        // The same publisher each time, so that its backoff doubles.
        let report = publisher.drain_outbox(soon()).await.unwrap();
        assert!(report.retried >= 1 && report.failed == 0 && report.remaining == 1, "{report:?}");
        let publication = world.publication(workflow).await;
        assert_eq!((publication.attempt_count, publication.sync.as_str()), (0, "pending"));
        assert_eq!(publication.error_class.as_deref(), Some("transient"));
        assert!(publication.due_in_secs.unwrap() <= 900.0);
        assert_eq!(publication.verify_in_secs, None, "a refusal leaves no doubt");
        world.skip(Duration::from_secs(u64::from(round) * 1000)).await;
    }
    assert_eq!(world.publication(workflow).await.last_error.as_deref(), Some("EventBridge throttles our calls"));
    assert_eq!(world.outbox(workflow).await, (0, 0, 1), "no workflow has failed");

    world.front.always(&name(workflow), None);
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().created, 1);
    let publication = world.publication(workflow).await;
    assert_eq!((publication.sync.as_str(), publication.last_error), ("synced", None));
}

/// A schedule fails at its first refusal, and delays no other. The publisher does not try it again by itself.
#[tokio::test]
async fn refused_schedules_fail_until_an_edit() {
    let world = World::new().await;
    let [wrong, right] = [world.create("0 9 * * *", "UTC").await, world.create("0 9 * * *", "UTC").await];
    world.front.next(&name(wrong), [INVALID]);

    let report = world.publish().await;

    assert_eq!((report.failed, report.created, report.remaining), (1, 1, 0));
    let publication = world.publication(wrong).await;
    assert_eq!((publication.sync.as_str(), publication.error_class.as_deref()), ("failed", Some("permanent")));
    assert_eq!(
        publication.last_error.as_deref(),
        Some("EventBridge refuses the schedule: Invalid Schedule Expression cron(..).")
    );
    assert_eq!((world.outbox(wrong).await, world.outbox(right).await), ((0, 1, 0), (1, 0, 0)));
    assert_eq!(world.publish().await, publisher::Report::default(), "it is not tried again by itself");

    world.patch(wrong, json!({"cron_schedule": "0 10 * * *"})).await;
    assert_eq!(world.publish().await.created, 1);
    assert_eq!(world.publication(wrong).await.sync, "synced");
    assert_eq!(world.outbox(wrong).await, (1, 1, 0), "what failed is kept for the record");
}

#[tokio::test]
async fn an_unknown_fault_is_tried_ten_times() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.always(&name(workflow), Some(STRANGE));
    let mut tries = 0;
    while world.publication(workflow).await.sync == "pending" {
        world.publish().await;
        tries += world.calls().len();
        world.skip(Duration::from_secs(3600) * u32::try_from(tries).unwrap()).await;
    }
    assert_eq!(tries, 10);
    let publication = world.publication(workflow).await;
    assert_eq!((publication.sync.as_str(), publication.attempt_count), ("failed", 10));
    assert_eq!(publication.last_error.as_deref(), Some("EventBridge answered 418 short and stout"));
    assert_eq!(world.outbox(workflow).await, (0, 1, 0));
}

#[tokio::test]
async fn a_denial_fails_no_workflow() {
    let world = World::new().await;
    world.freeze_clock().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.next(&name(workflow), [DENIED]);
    assert_eq!(world.publish().await.retried, 1);
    let publication = world.publication(workflow).await;
    assert_eq!((publication.error_class.as_deref(), publication.attempt_count), (Some("environment"), 0));
    world.skip(Duration::from_secs(5)).await;
    assert_eq!(world.publish().await.created, 1);
}

/// The leases of all other workflows are released at once.
#[tokio::test]
async fn three_denials_in_a_row_stop_drains() {
    let world = World::new().await;
    let mut workflows = Vec::new();
    for _ in 0..20 {
        let workflow = world.create("0 9 * * *", "UTC").await;
        world.front.always(&name(workflow), Some(DENIED));
        workflows.push(workflow);
    }
    // One call at a time, so that the third answer comes before the fourth call.
    let config = publisher::Config { api_concurrency: 1, ..world.config() };
    let publisher = world.publisher_with(config).await;

    let report = publisher.drain_outbox(soon()).await.unwrap();

    assert_eq!((report.retried, report.failed, report.remaining), (3, 0, 20));
    assert_eq!(world.calls().len(), 3, "the fourth is not requested");
    for workflow in &workflows {
        let publication = world.publication(*workflow).await;
        assert_eq!((publication.attempt_count, publication.is_leased), (0, false));
        world.front.always(&name(*workflow), None);
    }
    world.skip(Duration::from_secs(5)).await;
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().created, 20);
    world.assert_settled().await;
}

#[tokio::test]
async fn a_single_denied_workflow_fails() {
    let world = World::new().await;
    world.freeze_clock().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.always(&name(workflow), Some(DENIED));
    let publisher = world.publisher().await;
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().retried, 1);
    world.create("0 9 * * *", "UTC").await;
    let second = publisher.drain_outbox(soon()).await.unwrap();
    assert_eq!(second.created, 1);
    world.skip(Duration::from_secs(60)).await;

    let third = publisher.drain_outbox(soon()).await.unwrap();

    assert_eq!((second.failed, third.failed), (0, 1), "{second:?} {third:?}");
    let publication = world.publication(workflow).await;
    assert_eq!((publication.sync.as_str(), publication.error_class.as_deref()), ("failed", Some("permanent")));
    let sentence = publication.last_error.unwrap();
    assert!(sentence.starts_with("the publisher may not do this in EventBridge: "), "{sentence}");
    world.front.always(&name(workflow), None);
    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().created, 1);
}

#[tokio::test]
async fn a_permission_lost_meanwhile_fails_no_workflow() {
    let world = World::new().await;
    let mut workflows = Vec::new();
    for nth in 0..10 {
        let workflow = world.create("0 9 * * *", "UTC").await;
        if nth >= 5 {
            world.front.always(&name(workflow), Some(DENIED));
        }
        workflows.push(workflow);
    }
    let publisher = world.publisher_with(publisher::Config { api_concurrency: 1, ..world.config() }).await;
    for round in 1..=3 {
        assert_eq!(publisher.drain_outbox(soon()).await.unwrap().failed, 0);
        world.skip(Duration::from_secs(1000 * round)).await;
    }
    for workflow in workflows {
        world.front.always(&name(workflow), None);
    }
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().created, 5);
    world.assert_settled().await;
}

#[tokio::test]
async fn roles_unknown_to_iam_are_retried() {
    let world = World::new().await;
    world.freeze_clock().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.next(&name(workflow), [NO_ROLE]);
    assert_eq!(world.publish().await.retried, 1);
    assert_eq!(world.publication(workflow).await.error_class.as_deref(), Some("environment"));
    world.skip(Duration::from_secs(5)).await;
    assert_eq!(world.publish().await.created, 1);
}

#[tokio::test]
async fn missing_groups_are_named_and_retried() {
    let world = World::new().await;
    world.freeze_clock().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    let publisher =
        world.publisher_with(publisher::Config { schedule_group: "nowhere".to_owned(), ..world.config() }).await;
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().retried, 1);
    let publication = world.publication(workflow).await;
    assert_eq!(publication.error_class.as_deref(), Some("environment"));
    assert!(publication.last_error.unwrap().starts_with("the schedule group is missing"));
}

#[tokio::test]
async fn conflicting_updates_are_retried() {
    let world = World::new().await;
    world.freeze_clock().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.publish().await;
    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    world.front.next(&name(workflow), [Answer::Refuse(409, "ConflictException", "being changed")]);
    assert_eq!(world.publish().await.retried, 1);
    world.skip(Duration::from_secs(5)).await;
    assert_eq!(world.publish().await.updated, 1);
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(0 10 * * ? *)"));
}

#[tokio::test]
async fn a_start_that_passed_fails_no_workflow() {
    let world = World::new().await;
    world.freeze_clock().await;
    let mut tx = db::begin_transaction(&world.pool).await.unwrap();
    let fields = json!({"cron_schedule": "30 12 * * *", "starts_at": "2026-03-02T10:05:00Z"});
    let workflow = world.create_in(&mut tx, fields).await;
    tx.commit().await.unwrap();
    world.front.delay(&name(workflow));
    let publisher = world.publisher().await;
    let frozen = async {
        // A Lambda can be frozen between two invocations, also just before it sends a request.
        world.front.arrival(&name(workflow)).await;
        world.clock.set(at("2026-03-02T10:15:00Z"));
        world.front.release();
    };
    let (report, ()) = tokio::join!(publisher.drain_outbox(soon()), frozen);

    let report = report.unwrap();
    assert_eq!((report.failed, report.created), (0, 0), "EventBridge refuses a start of so long ago");
    assert_eq!(world.publication(workflow).await.error_class.as_deref(), Some("transient"));
    assert_eq!(world.outbox(workflow).await, (0, 0, 1), "no workflow has failed");
    world.skip(Duration::from_secs(5)).await;
    assert_eq!(world.publish().await.created, 1);
    assert_eq!(world.schedule(workflow).await.unwrap().get("StartDate"), None);
    world.assert_settled().await;
}

#[tokio::test]
async fn an_end_that_passed_fails_no_workflow() {
    let world = World::new().await;
    world.freeze_clock().await;
    let mut tx = db::begin_transaction(&world.pool).await.unwrap();
    let fields = json!({"cron_schedule": "* * * * *", "ends_at": "2026-03-02T10:05:00Z"});
    let workflow = world.create_in(&mut tx, fields).await;
    tx.commit().await.unwrap();
    world.front.delay(&name(workflow));
    let publisher = world.publisher().await;
    let frozen = async {
        world.front.arrival(&name(workflow)).await;
        world.clock.set(at("2026-03-02T10:15:00Z"));
        world.front.release();
    };
    let (report, ()) = tokio::join!(publisher.drain_outbox(soon()), frozen);

    let report = report.unwrap();
    assert_eq!((report.failed, report.created), (0, 0), "EventBridge refuses an end that has passed");
    assert_eq!(world.publication(workflow).await.error_class.as_deref(), Some("transient"));
    world.skip(Duration::from_secs(5)).await;
    assert_eq!(world.publish().await.failed, 0);
    assert_eq!(world.schedule(workflow).await, None);
    world.assert_settled().await;
}

#[tokio::test]
async fn unanswered_calls_time_out_and_are_verified() {
    let world = World::new().await;
    world.freeze_clock().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.next(&name(workflow), [Answer::DoneButSilent]);
    let publisher = world.impatient_publisher().await;
    assert!(publisher.drain_outbox(soon()).await.unwrap().retried >= 1);
    let shipped = publisher::scheduler_client(Some(&world.endpoint)).await;
    let limit = shipped.config().timeout_config().and_then(TimeoutConfig::read_timeout);
    assert_eq!(limit, Some(Duration::from_secs(3)), "of one answer, well within a tick");
    let publication = world.publication(workflow).await;
    assert_eq!(publication.last_error.as_deref(), Some("EventBridge did not answer in time"));
    assert!(publication.verify_in_secs.is_some() && publication.spec_hash.is_none());
    world.skip(Duration::from_secs(5)).await;
    assert_eq!(world.publish().await.updated, 1);
}

#[tokio::test]
async fn drains_without_time_claim_nothing() {
    let world = World::new().await;
    world.create("0 9 * * *", "UTC").await;
    let publisher = world.publisher().await;
    let report = publisher.drain_outbox(std::time::Instant::now() + Duration::from_secs(9)).await.unwrap();
    assert_eq!((report.created, report.remaining), (0, 1));
    assert_eq!(world.calls(), []);
}

#[tokio::test]
async fn exhausted_connections_lose_no_edit() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    let role = format!("limited_{}", uuid::Uuid::new_v4().simple());
    let made = format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'x' CONNECTION LIMIT 6;
         GRANT USAGE ON SCHEMA public TO {role};
         GRANT ALL ON ALL TABLES IN SCHEMA public TO {role};
         GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(made)).execute(&world.pool).await.unwrap();
    let (_, place) = world.dsn.rsplit_once('@').unwrap();
    let dsn = format!("postgres://{role}:x@{place}");
    let others =
        sqlx::postgres::PgPoolOptions::new().min_connections(6).max_connections(6).connect(&dsn).await.unwrap();
    let connections = futures::future::join_all((0..6).map(|_| others.acquire())).await;
    assert!(connections.iter().all(Result::is_ok), "all that the role may have");
    let refused = world.publisher_without_patience_for(&dsn).await;
    assert!(refused.drain_outbox(soon()).await.is_err(), "an error, which Lambda counts");
    assert_eq!((world.calls().len(), world.outbox(workflow).await), (0, (0, 0, 1)));
    drop(connections);
    others.close().await;
    let publisher = world.publisher_by_way_of(&dsn).await;
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().created, 1);
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(0 9 * * ? *)"));
}
