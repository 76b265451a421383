//! Orders of events that would lose an edit, or publish an old one, if the protocol had a bug.

use std::process::Command;
use std::time::Duration;

use reqwest::Method;
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::PATIENCE;
use tokio::process::Child;

use crate::proxy::{Answer, INVALID};
use crate::world::{World, name, soon, stopped};

const LEASE: Duration = Duration::from_secs(61);
const SIGNATURES_DIE: Duration = Duration::from_secs(17 * 60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_edit_delays_no_other_workflow() {
    let world = World::new().await;
    let [edited, other] = [world.create("0 9 * * *", "UTC").await, world.create("0 8 * * *", "UTC").await];
    world.front.delay(&name(edited));
    let publisher = world.publisher().await;
    let draining = tokio::spawn(async move { publisher.drain_outbox(soon()).await.unwrap() });
    world.front.arrival(&name(edited)).await;

    // The claim has read the workflow. Now an edit enqueues, and stays open while the publisher settles.
    let edit = world.open_patch(edited, json!({"cron_schedule": "0 10 * * *"})).await;
    world.front.release();
    let settled = async {
        while world.publication(other).await.is_leased {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, settled).await.expect("the other workflow is settled");
    assert!(world.publication(edited).await.is_leased, "its settle waits for the edit");
    edit.commit().await.unwrap();

    let report = draining.await.unwrap();
    assert_eq!((report.created, report.updated), (2, 1), "the same drain has found the edit due");
    assert_eq!(world.expression(edited).await.as_deref(), Some("cron(0 10 * * ? *)"));
    world.assert_settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_during_calls_are_published_afterwards() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.delay(&name(workflow));
    let publisher = world.publisher().await;
    let draining = tokio::spawn(async move { publisher.drain_outbox(soon()).await.unwrap() });
    world.front.arrival(&name(workflow)).await;
    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    world.front.release();

    let report = draining.await.unwrap();
    assert_eq!((report.processed, report.coalesced), (2, 0));
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(0 10 * * ? *)"));
    world.assert_settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_old_revision_fails_no_workflow() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.next(&name(workflow), [INVALID]);
    world.front.delay(&name(workflow));
    let publisher = world.publisher().await;
    let draining = tokio::spawn(async move { publisher.drain_outbox(soon()).await.unwrap() });
    world.front.arrival(&name(workflow)).await;
    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    world.front.release();
    world.front.delay(&name(workflow));
    until_claimed(&world, workflow, 2).await;

    let publication = world.publication(workflow).await;
    assert_eq!((publication.sync.as_str(), publication.error_class), ("pending", None));
    assert_eq!(world.outbox(workflow).await, (0, 0, 2), "the newer edit settles both");
    world.front.release();
    assert_eq!(draining.await.unwrap().processed, 2);
    assert_eq!(world.outbox(workflow).await, (2, 0, 0));
    world.assert_settled().await;
}

/// The fence refuses its settle, and a verify pass undoes what its late request has changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_publishers_settle_nothing() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.delay(&name(workflow));
    let stale = world.process(&["--once"], None);
    world.front.arrival(&name(workflow)).await;
    freeze(&stale, &world).await;

    // The publisher is stopped with its request in flight, until its lease has expired and another publisher has taken
    // over.
    world.skip(LEASE).await;
    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    assert_eq!(world.publish().await.processed, 2);
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(0 10 * * ? *)"));

    // Its request arrives and finds a schedule, so it sends an update with the old cron.
    world.front.release();
    signal(&stale, "CONT");
    let stale = stale.wait_with_output().await.unwrap();
    let report: Value = serde_json::from_slice(&stale.stdout).unwrap();
    assert_eq!((&report["processed"], &report["created"], &report["updated"]), (&json!(0), &json!(0), &json!(0)));
    let publication = world.publication(workflow).await;
    assert_eq!((publication.applied_revision, publication.epoch), (Some(2), 2), "the fence refused it");
    assert!(publication.verify_in_secs.is_some_and(|secs| secs > 900.0), "a takeover makes a verify pass due");

    world.skip(LEASE + SIGNATURES_DIE).await;
    world.publish().await;
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(0 10 * * ? *)"));
    assert_eq!(world.publication(workflow).await.verify_in_secs, None);
    world.assert_settled().await;
}

#[cfg(debug_assertions)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_publishers_release_no_newer_lease() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.delay(&name(workflow));
    let mut stale = world.process(&["--once"], Some("P10:1:stop"));
    world.front.arrival(&name(workflow)).await;
    freeze(&stale, &world).await;
    world.skip(LEASE).await;
    world.front.delay(&name(workflow));
    let newer = world.publisher().await;
    let newer = tokio::spawn(async move { newer.drain_outbox(soon()).await.unwrap() });
    until_claimed(&world, workflow, 2).await;

    world.front.release();
    signal(&stale, "CONT");
    stopped(&mut stale).await;

    let publication = world.publication(workflow).await;
    assert!(publication.is_leased, "it has settled, and changed nothing");
    assert_eq!((publication.epoch, publication.applied_revision), (2, None));
    world.front.release();
    assert_eq!(newer.await.unwrap().processed, 1);
    world.assert_settled().await;
}

/// Waits until a workflow is claimed for the `epoch`th time.
async fn until_claimed(world: &World, workflow: WorkflowId, epoch: i64) {
    let claimed = async {
        while world.publication(workflow).await.epoch < epoch {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, claimed).await.expect("it is claimed");
}

/// Stops a process between two transactions.
///
/// A statement that it has sent would be executed after its lease has lapsed, and a transaction that it has started would
/// keep its locks.
async fn freeze(process: &Child, world: &World) {
    let frozen = async {
        signal(process, "STOP");
        while !is_stopped(process) || world.has_open_transaction().await {
            if is_stopped(process) {
                signal(process, "CONT");
                tokio::task::yield_now().await;
                signal(process, "STOP");
            }
        }
    };
    tokio::time::timeout(PATIENCE, frozen).await.expect("it is between two transactions");
}

/// Whether the kernel has stopped all of it.
fn is_stopped(process: &Child) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id().unwrap())).unwrap();
    // The state follows the name of the program, which is in parentheses.
    stat.rsplit_once(") ").unwrap().1.starts_with('T')
}

pub(crate) fn signal(process: &Child, signal: &str) {
    let pid = process.id().unwrap().to_string();
    assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
}

#[tokio::test]
async fn verify_passes_without_drift_only_read() {
    let world = World::new().await;
    world.freeze_clock().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.next(&name(workflow), [Answer::DoneButBroken]);
    let report = world.publish().await;
    assert_eq!(report.retried, 1);
    let publication = world.publication(workflow).await;
    assert_eq!((publication.spec_hash, publication.error_class.as_deref()), (None, Some("transient")));
    assert!(publication.verify_in_secs.is_some());

    // The retry finds what the unanswered request has done, and the verify pass remains due.
    world.skip(Duration::from_secs(5)).await;
    world.calls();
    assert_eq!(world.publish().await.updated, 1);
    let calls = [("POST", 409), ("GET", 200), ("PUT", 200)].map(|(method, status)| (method.to_owned(), status));
    assert_eq!(world.calls(), calls);
    let publication = world.publication(workflow).await;
    assert_eq!(publication.sync, "synced");
    assert!(publication.verify_in_secs.is_some_and(|secs| secs > 900.0));

    world.skip(SIGNATURES_DIE).await;
    assert_eq!(world.publish().await.unchanged, 1);
    assert_eq!(world.calls(), [("GET".to_owned(), 200)]);
    let publication = world.publication(workflow).await;
    assert_eq!((publication.verify_in_secs, publication.due_in_secs), (None, None));
    assert_eq!(world.publish().await, publisher::Report::default(), "nothing is due any more");
}

#[tokio::test]
async fn edits_reverted_after_lost_answers_are_published() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.publish().await;
    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    world.front.next(&name(workflow), [Answer::DoneButBroken]);
    world.publish().await;
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(0 10 * * ? *)"), "done, but not recorded");

    world.patch(workflow, json!({"cron_schedule": "0 9 * * *"})).await;
    world.publish().await;
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(0 9 * * ? *)"));
}

#[tokio::test]
async fn a_verify_pass_undoes_foreign_changes() {
    let world = World::new().await;
    let [lost, back] = [world.create("0 9 * * *", "UTC").await, world.create("0 9 * * *", "UTC").await];
    world.publish().await;
    let existing = world.schedule_of_the_past(back).await;
    world.delete(back).await;
    world.front.next(&name(lost), [Answer::DoneButBroken]);
    world.front.next(&format!("DELETE {}", name(back)), [Answer::DoneButBroken]);
    world.patch(lost, json!({"cron_schedule": "0 10 * * *"})).await;
    world.publish().await;
    world.skip(Duration::from_secs(5)).await;
    world.publish().await;

    world.meddle(Method::DELETE, lost, json!({})).await;
    world.meddle(Method::POST, back, existing).await;
    world.skip(SIGNATURES_DIE).await;
    world.calls();
    let report = world.publish().await;

    assert_eq!((report.created, report.deleted), (1, 1));
    assert_eq!(world.expression(lost).await.as_deref(), Some("cron(0 10 * * ? *)"));
    assert_eq!(world.schedule(back).await, None);
    for workflow in [lost, back] {
        assert_eq!(world.publication(workflow).await.verify_in_secs, None);
    }
    world.assert_settled().await;
}

#[tokio::test]
async fn throttled_verify_passes_back_off() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.next(&name(workflow), [Answer::DoneButBroken]);
    world.publish().await;
    world.skip(Duration::from_secs(5)).await;
    world.publish().await;
    world.skip(SIGNATURES_DIE).await;
    world.calls();
    world.front.always(&name(workflow), Some(crate::proxy::THROTTLED));
    world.freeze_clock().await;

    let report = world.publish().await;

    assert_eq!(report.retried, 1, "{report:?}");
    let publication = world.publication(workflow).await;
    assert!(publication.due_in_secs.is_some_and(|secs| secs > 0.0) && publication.verify_in_secs.is_some());
    assert_eq!(publication.attempt_count, 0);
    world.front.always(&name(workflow), None);
    world.skip(SIGNATURES_DIE * 2).await;
    assert_eq!(world.publish().await.unchanged, 1);
    world.assert_settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repairs_requested_during_calls_are_made() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.publish().await;
    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    world.front.delay(&name(workflow));
    let publisher = world.publisher().await;
    let draining = tokio::spawn(async move { publisher.drain_outbox(soon()).await.unwrap() });
    world.front.arrival(&name(workflow)).await;
    let mut tx = db::begin_transaction(&world.pool).await.unwrap();
    workflows::outbox::enqueue_orphan_cleanup(&mut tx, workflow, world.clock.now()).await.unwrap();
    tx.commit().await.unwrap();
    world.calls();
    world.front.release();

    draining.await.unwrap();

    assert_eq!(world.calls(), vec![("PUT".to_owned(), 200); 2], "unknown stays unknown until it was called again");
    world.assert_settled().await;
}
