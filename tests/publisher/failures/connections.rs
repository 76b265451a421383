//! The connection between the publisher and EventBridge: broken connections and slow credentials.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::routing::get;
use axum::{Json, Router};
use publisher::Publisher;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::world::{World, soon};

/// A proxy to EventBridge that breaks the connection of the first PUT.
async fn breaking_way(target: String) -> (String, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let way = format!("http://{}", listener.local_addr().unwrap());
    let is_broken = Arc::new(AtomicBool::new(false));
    let breaking = Arc::clone(&is_broken);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&target).await.unwrap();
            tokio::spawn(pass(client, server, Arc::clone(&breaking)));
        }
    });
    (way, is_broken)
}

async fn pass(mut client: TcpStream, mut server: TcpStream, is_broken: Arc<AtomicBool>) {
    let (mut requested, mut answers) = client.split();
    let (mut answered, mut asks) = server.split();
    let there = async {
        let mut bytes = [0; 65536];
        while let Ok(count @ 1..) = requested.read(&mut bytes).await {
            if bytes.starts_with(b"PUT ") && !is_broken.swap(true, Ordering::SeqCst) {
                return;
            }
            asks.write_all(&bytes[..count]).await.unwrap();
        }
    };
    let back = async {
        tokio::io::copy(&mut answered, &mut answers).await.ok();
    };
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}

/// The publisher repeats the call at once. It reads the schedule back later, when the first request can no longer
/// arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_connection_costs_no_backoff() {
    let world = World::new().await;
    let (way, is_broken) = breaking_way(world.endpoint.trim_start_matches("http://").to_owned()).await;
    let client = publisher::scheduler_client(Some(&way)).await;
    let publisher =
        Publisher::new(world.config(), crate::database::publisher_pool(&world.dsn), client, world.clock.clone());
    let workflow = world.create("0 9 * * *", "UTC").await;
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().created, 1);
    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;

    let report = publisher.drain_outbox(soon()).await.unwrap();

    assert!(is_broken.load(Ordering::SeqCst), "the kept connection was used");
    assert_eq!((report.updated, report.retried), (1, 0));
    let publication = world.publication(workflow).await;
    assert_eq!(publication.sync, "synced");
    assert!(publication.verify_in_secs.is_some_and(|secs| secs > 900.0), "the first request may still arrive");
}

/// A proxy to EventBridge that counts its connections.
async fn counting_way(target: String) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let way = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let mut server = TcpStream::connect(&target).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await });
        }
    });
    (way, connections)
}

/// After a minute, a frozen Lambda would find only connections in its pool that the server has closed.
#[tokio::test]
async fn idle_connections_are_not_kept() {
    let world = World::new().await;
    let (way, connections) = counting_way(world.endpoint.trim_start_matches("http://").to_owned()).await;
    let client = publisher::scheduler_client(Some(&way)).await;
    let publisher =
        Publisher::new(world.config(), crate::database::publisher_pool(&world.dsn), client, world.clock.clone());
    let workflow = world.create("0 9 * * *", "UTC").await;
    publisher.drain_outbox(soon()).await.unwrap();
    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().updated, 1);
    assert_eq!(connections.load(Ordering::SeqCst), 1, "kept from one drain to the next");

    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(30)).await;
    tokio::time::resume();
    world.patch(workflow, json!({"cron_schedule": "0 11 * * *"})).await;
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().updated, 1);
    assert_eq!(connections.load(Ordering::SeqCst), 2, "half a minute later it is a new one");
}

/// The publisher waits for credentials, also if they take longer than a call may take. No call times out because of
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_credentials_time_out_no_call() {
    let world = World::new().await;
    for _ in 0..3 {
        world.create("0 9 * * *", "UTC").await;
    }
    let credentials = async || {
        // Longer than the timeout of a call. The test measures no time.
        tokio::time::sleep(Duration::from_millis(3500)).await;
        Json(json!({"AccessKeyId": "a", "SecretAccessKey": "b", "Token": "c", "Expiration": "2099-01-01T00:00:00Z"}))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/credentials", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/credentials", get(credentials))).await });

    let mut command = world.command();
    command.args(["--once"]).env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    command.env("AWS_CONTAINER_CREDENTIALS_FULL_URI", url).stdout(std::process::Stdio::piped());
    let done = command.spawn().unwrap().wait_with_output().await.unwrap();

    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&report["created"], &report["retried"]), (&json!(3), &json!(0)));
    world.assert_settled().await;
}
