//! Publisher processes that are killed with SIGKILL at each of their fault points.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use serde_json::json;

use crate::world::{World, stopped};

const LEASE: Duration = Duration::from_secs(61);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_killed_anywhere_loses_nothing() {
    for point in ["P0", "P1", "P2", "P3", "P4", "P5", "P6", "P8", "P9", "P10", "P11", "P12"] {
        let world = World::new().await;
        let [kept, cleared] = [world.create("0 9 * * *", "UTC").await, world.create("0 8 * * *", "UTC").await];
        world.publish().await;
        world.patch(kept, json!({"cron_schedule": "0 10 * * *"})).await;
        world.patch(cleared, json!({"cron_schedule": null})).await;
        let new = world.create("0 7 * * *", "UTC").await;

        let killed = world.process(&["--once"], Some(&format!("{point}:1:kill"))).wait_with_output().await.unwrap();
        assert_eq!(killed.status.signal(), Some(9), "{point}: {}", String::from_utf8_lossy(&killed.stderr));

        world.skip(LEASE).await;
        world.publish().await;
        assert_eq!(world.expression(kept).await.as_deref(), Some("cron(0 10 * * ? *)"), "{point}");
        assert_eq!(world.expression(new).await.as_deref(), Some("cron(0 7 * * ? *)"), "{point}");
        assert_eq!(world.schedule(cleared).await, None, "{point}");
        world.assert_settled().await;

        // Also later than the verify passes that follow a takeover.
        world.skip(LEASE + Duration::from_secs(17 * 60)).await;
        world.publish().await;
        for workflow in [kept, cleared, new] {
            let publication = world.publication(workflow).await;
            assert_eq!((publication.sync.as_str(), publication.verify_in_secs), ("synced", None), "{point}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_publisher_is_taken_over() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    let mut frozen = world.process(&["--once"], Some("P8:1:stop"));
    stopped(&mut frozen).await;
    assert!(world.publication(workflow).await.is_leased);
    assert_eq!(world.publish().await.processed, 0, "the lease is live");

    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    world.skip(LEASE).await;
    assert_eq!(world.publish().await.processed, 2);
    frozen.kill().await.unwrap();
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(0 10 * * ? *)"));
    world.assert_settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_reverted_after_crashes_are_published() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.publish().await;
    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    let killed = world.process(&["--once"], Some("P8:1:kill")).wait_with_output().await.unwrap();
    assert_eq!(killed.status.signal(), Some(9));
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(0 10 * * ? *)"), "done, but not recorded");

    // The edit restores what the publisher last recorded, but EventBridge has another schedule.
    world.patch(workflow, json!({"cron_schedule": "0 9 * * *"})).await;
    world.skip(LEASE).await;
    world.publish().await;
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(0 9 * * ? *)"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspect_is_published_last_and_singly() {
    let world = World::new().await;
    let suspect = world.create("0 9 * * *", "UTC").await;
    for _ in 0..10 {
        let killed = world.process(&["--once"], Some("P5:1:kill")).wait_with_output().await.unwrap();
        assert_eq!(killed.status.signal(), Some(9));
        world.skip(LEASE * 20).await;
        let lapsed = "UPDATE publications SET lease_until = cronbox_now()";
        sqlx::query(lapsed).execute(&world.pool).await.unwrap();
    }
    assert_eq!(world.publication(suspect).await.attempt_count, 10);

    let other = world.create("0 8 * * *", "UTC").await;
    let killed = world.process(&["--once"], Some("P5:2:kill")).wait_with_output().await.unwrap();
    assert_eq!(killed.status.signal(), Some(9));
    assert_eq!(world.publication(other).await.sync, "synced", "the others are done before");
    let publication = world.publication(suspect).await;
    assert_eq!((publication.attempt_count, publication.error_class), (11, None));

    world.skip(LEASE * 30).await;
    world.publish().await;
    assert_eq!(world.expression(suspect).await.as_deref(), Some("cron(0 9 * * ? *)"));
    assert_eq!(world.publication(suspect).await.attempt_count, 0);
}

/// Any workflow of the batch may have caused two crashes, so from then on each is processed separately.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_third_attempt_after_crashes_runs_singly() {
    let world = World::new().await;
    let workflows = [world.create("0 9 * * *", "UTC").await, world.create("0 8 * * *", "UTC").await];
    for (point, round) in [("P5:1:kill", 1), ("P5:1:kill", 2), ("P5:2:kill", 3)] {
        let killed = world.process(&["--once"], Some(point)).wait_with_output().await.unwrap();
        assert_eq!(killed.status.signal(), Some(9), "{round}: {}", String::from_utf8_lossy(&killed.stderr));
        world.skip(LEASE * round).await;
    }
    let mut synced = 0;
    for workflow in workflows {
        synced += u32::from(world.publication(workflow).await.sync == "synced");
    }
    assert_eq!(synced, 1, "the first of them is done before the second is started");
    world.publish().await;
    for workflow in workflows {
        assert_eq!(world.publication(workflow).await.sync, "synced");
    }
    world.assert_settled().await;
}
