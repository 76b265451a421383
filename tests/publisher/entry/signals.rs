//! A signal ends the process, and releases what it has claimed and not called.

use std::time::Duration;

use serde_json::json;
use tests::PATIENCE;

use crate::converge::interleavings::signal;
use crate::entry::lambda::{Runtime, answer, serve};
use crate::world::{World, name};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminated_once_returns_its_leases() {
    let world = World::new().await;
    let [called, waiting] = [world.create("0 9 * * *", "UTC").await, world.create("0 8 * * *", "UTC").await];
    for workflow in [called, waiting] {
        world.front.delay(&name(workflow));
    }
    let mut command = world.command();
    command.args(["--once"]).env("CRONBOX_API_CONCURRENCY", "1").stdout(std::process::Stdio::piped());
    let once = command.spawn().unwrap();
    world.front.arrival(&name(called)).await;

    signal(&once, "TERM");
    let returned = async {
        while world.publication(waiting).await.is_leased {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, returned).await.expect("its lease is returned");
    assert!(world.publication(called).await.is_leased, "its call is still open");
    world.front.release();
    let ended = once.wait_with_output().await.unwrap();

    assert_eq!(ended.status.code(), Some(1), "work is left to do");
    assert!(String::from_utf8_lossy(&ended.stdout).contains("\"created\":1"));
    let publication = world.publication(waiting).await;
    assert_eq!((publication.attempt_count, publication.verify_in_secs), (0, None));
    assert_eq!(world.publication(called).await.sync, "synced");
}

/// A Lambda's sandbox ends while a call is in flight: the invocation is answered, and what it has not called is
/// released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminated_lambda_returns_its_leases() {
    let world = World::new().await;
    let [called, waiting] = [world.create("0 9 * * *", "UTC").await, world.create("0 8 * * *", "UTC").await];
    for workflow in [called, waiting] {
        world.front.delay(&name(workflow));
    }
    let (runtime, (invoke, mut answered)) = Runtime::new();
    let mut command = world.lambda_command(&serve(runtime).await);
    let mut lambda = command.env("CRONBOX_API_CONCURRENCY", "1").stdout(std::process::Stdio::null()).spawn().unwrap();
    invoke.send(json!({})).unwrap();
    world.front.arrival(&name(called)).await;

    signal(&lambda, "TERM");
    let returned = async {
        while world.publication(waiting).await.is_leased {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, returned).await.expect("its lease is returned");
    world.front.release();
    let (kind, report) = answer(&mut answered).await;

    assert_eq!((kind.as_str(), &report["created"], &report["remaining"]), ("response", &json!(1), &json!(1)));
    assert!(lambda.wait().await.unwrap().success());
    assert_eq!(world.publication(called).await.sync, "synced");
    assert_eq!(world.publication(waiting).await.verify_in_secs, None);
}
