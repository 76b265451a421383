//! Postgres has committed a settle, but the publisher gets no answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::proxy::{STRANGE, THROTTLED};
use crate::world::{World, name, soon};

/// A part of the first statement of a settle.
const LOCK: &[u8] = b"-- lock free";

/// A proxy to the database that drops the answer to the first settle's commit, and the connection.
async fn way_that_loses_an_answer(dsn: &str) -> (String, Arc<AtomicBool>) {
    let target: PgConnectOptions = dsn.parse().unwrap();
    let target = format!("{}:{}", target.get_host(), target.get_port());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let way = dsn.replace(&target, &address);
    let is_lost = Arc::new(AtomicBool::new(false));
    let losing = is_lost.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&target).await.unwrap();
            tokio::spawn(pass(client, server, losing.clone()));
        }
    });
    (way, is_lost)
}

async fn pass(mut client: TcpStream, mut server: TcpStream, is_lost: Arc<AtomicBool>) {
    let (mut requested, mut answers) = client.split();
    let (mut answered, mut asks) = server.split();
    let loses = AtomicBool::new(false);
    let there = async {
        let mut bytes = [0; 65536];
        let mut is_settling = false;
        while let Ok(count @ 1..) = requested.read(&mut bytes).await {
            let says = |words: &[u8]| bytes[..count].windows(words.len()).any(|some| some == words);
            is_settling |= says(LOCK);
            if is_settling && says(b"COMMIT") && !is_lost.swap(true, Ordering::SeqCst) {
                loses.store(true, Ordering::SeqCst);
            }
            asks.write_all(&bytes[..count]).await.unwrap();
        }
    };
    let back = async {
        let mut bytes = [0; 65536];
        while let Ok(count @ 1..) = answered.read(&mut bytes).await {
            if loses.load(Ordering::SeqCst) || answers.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}

/// Throttling counts no attempt, so the settle returns the one that its claim has counted. Its repetition must not
/// return another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unanswered_settles_return_no_attempt_twice() {
    let world = World::new().await;
    world.freeze_clock().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.next(&name(workflow), [STRANGE]);
    world.publish().await;
    assert_eq!(world.publication(workflow).await.attempt_count, 1, "the cause is unknown, so it counts");
    world.skip(Duration::from_secs(5)).await;
    world.front.always(&name(workflow), Some(THROTTLED));

    let (way, is_lost) = way_that_loses_an_answer(&world.dsn).await;
    world.publisher_by_way_of(&way).await.drain_outbox(soon()).await.unwrap();

    assert!(is_lost.load(Ordering::SeqCst), "a settle went unanswered");
    let publication = world.publication(workflow).await;
    assert_eq!((publication.attempt_count, publication.is_leased), (1, false));
    assert_eq!(publication.error_class.as_deref(), Some("transient"));
}
