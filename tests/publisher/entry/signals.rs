//! A signal ends the process, and releases what it has claimed and not called.

use std::time::{Duration, Instant};

use serde_json::json;
use tests::PATIENCE;

use crate::converge::interleavings::signal;
use crate::entry::lambda::{Runtime, answer, serve};
use crate::world::{World, name};

/// Repeats a story until its call was still open when the leases were returned. A process waits 3 s for an answer, and this machine may
/// pause for longer.
async fn until_call_was_open(story: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !story().await {
        assert!(began.elapsed() < PATIENCE, "the call always ends before");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminated_once_returns_its_leases() {
    until_call_was_open(terminate_once).await;
}

/// Returns whether the call was open until its answer.
async fn terminate_once() -> bool {
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
    let is_open = world.publication(called).await.is_leased;
    world.front.release();
    let ended = once.wait_with_output().await.unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    if ["\"retried\":1", "\"retried\":2"].iter().any(|timed_out| said.contains(timed_out)) {
        return false;
    }

    assert!(is_open, "its call is still open");
    assert_eq!(ended.status.code(), Some(1), "work is left to do");
    assert!(said.contains("\"created\":1"), "{said}");
    let publication = world.publication(waiting).await;
    assert_eq!((publication.attempt_count, publication.verify_in_secs), (0, None));
    assert_eq!(world.publication(called).await.sync, "synced");
    true
}

/// A Lambda's sandbox ends while a call is in flight: the invocation is answered, and what it has not called is
/// released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminated_lambda_returns_its_leases() {
    until_call_was_open(terminate_lambda).await;
}

/// Returns whether the call was open until its answer.
async fn terminate_lambda() -> bool {
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
    if report["retried"].as_u64().is_some_and(|timed_out| timed_out > 0) {
        return false;
    }

    assert_eq!((kind.as_str(), &report["created"], &report["remaining"]), ("response", &json!(1), &json!(1)));
    assert!(lambda.wait().await.unwrap().success());
    assert_eq!(world.publication(called).await.sync, "synced");
    assert_eq!(world.publication(waiting).await.verify_in_secs, None);
    true
}
