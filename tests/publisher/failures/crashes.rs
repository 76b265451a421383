//! Publisher processes that are killed with SIGKILL at each of their fault points.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tests::PATIENCE;

use crate::scale::statement::execute;
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

/// Waits until this is true.
async fn until(what: &str, is_true: impl AsyncFn() -> bool) {
    let becomes_true = async {
        while !is_true().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, becomes_true).await.unwrap_or_else(|_| panic!("it never happened that {what}"));
}

/// Lets each settle wait in the middle of its statement while the story holds the advisory lock 1.
const SETTLES_WAIT: &str = "
    CREATE FUNCTION wait_for_story() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock_shared(1);
        RETURN NEW;
    END $$;
    CREATE TRIGGER wait_for_story BEFORE UPDATE OF applied_revision ON publications
        FOR EACH ROW EXECUTE FUNCTION wait_for_story()";

/// A backlog is settled by two statements at once, and the process is killed while Postgres executes both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_killed_amid_two_settles_loses_nothing() {
    let world = World::new().await;
    let mut workflows = Vec::new();
    for _ in 0..12 {
        workflows.push(world.create("0 9 * * *", "UTC").await);
    }
    execute(&world, SETTLES_WAIT.to_owned()).await;
    let mut story = PgConnection::connect(&world.dsn).await.unwrap();
    sqlx::raw_sql("SELECT pg_advisory_lock(1)").execute(&mut story).await.unwrap();

    let mut killed = world.process(&["--once", "--batch-size", "4"], None);
    let both_wait = "SELECT COUNT(*) = 2 FROM pg_locks
                      WHERE locktype = 'advisory' AND NOT granted
                        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    until("both settles wait", async || sqlx::query_scalar(both_wait).fetch_one(&world.pool).await.unwrap()).await;
    killed.kill().await.unwrap();
    story.close().await.unwrap();
    // Both statements end, and Postgres finds that their client is gone.
    until("both are rolled back", async || !world.has_open_transaction().await).await;
    for workflow in &workflows {
        assert_eq!(world.publication(*workflow).await.sync, "pending", "neither settle was committed");
    }

    world.skip(LEASE).await;
    world.publish().await;
    for workflow in &workflows {
        assert_eq!(world.expression(*workflow).await.as_deref(), Some("cron(0 9 * * ? *)"));
    }
    world.assert_settled().await;
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
