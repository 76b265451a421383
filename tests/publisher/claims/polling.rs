//! Many publishers poll while many edits are made: each edit is published after few polls, and none twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::json;

use crate::world::{World, soon};

const PUBLISHERS: usize = 8;
const EDITS: usize = 1_000;
const WORKFLOWS: usize = 100;
const POLL: Duration = Duration::from_millis(100);
/// The number of polls of each publisher that an edit may wait for.
const MOST_POLLS: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn edits_wait_for_few_polls() {
    let world = Arc::new(World::with_latency(Duration::from_millis(15)).await);
    let mut workflows = Vec::new();
    for _ in 0..WORKFLOWS {
        workflows.push(world.create("0 0 * * *", "UTC").await);
    }
    world.publish().await;
    world.calls();
    let is_over = Arc::new(AtomicBool::new(false));
    let polling: Vec<_> = (0..PUBLISHERS).map(|_| tokio::spawn(poll(world.clone(), is_over.clone()))).collect();

    let mut committed: Vec<DateTime<Utc>> = Vec::new();
    for nth in 0..EDITS {
        let cron = format!("{} {} * * *", nth % 60, 1 + nth % 23);
        world.patch(workflows[nth % WORKFLOWS], json!({ "cron_schedule": cron })).await;
        committed.push(sqlx::query_scalar("SELECT cronbox_now()").fetch_one(&world.pool).await.unwrap());
    }
    is_over.store(true, Ordering::Relaxed);
    let mut polls: Vec<DateTime<Utc>> = Vec::new();
    for poll in polling {
        polls.extend(poll.await.unwrap());
    }
    world.publish().await;

    let processed = "SELECT processed_on FROM outbox_events ORDER BY id OFFSET $1";
    let first = i64::try_from(WORKFLOWS).unwrap();
    let processed: Vec<DateTime<Utc>> = sqlx::query_scalar(processed).bind(first).fetch_all(&world.pool).await.unwrap();
    // How many polls ended between the commit and the publishing, by the database's clock.
    let waited = processed.iter().zip(&committed).map(|(processed, committed)| {
        polls.iter().filter(|ended| *committed < **ended && **ended < *processed).count()
    });
    let mut waited: Vec<usize> = waited.collect();
    waited.sort_unstable();
    let (p50, p99) = (waited[EDITS / 2], waited[EDITS * 99 / 100]);
    assert!(p99 <= MOST_POLLS * PUBLISHERS, "p99 {p99} polls of {PUBLISHERS} publishers");
    let calls = world.calls().len();
    assert!(calls <= EDITS, "{calls} calls for {EDITS} edits");
    println!("p50 {p50}, p99 {p99} polls, {calls} calls");
    world.assert_settled().await;
}

/// Drains and waits until the edits are over; returns the end of each drain.
async fn poll(world: Arc<World>, is_over: Arc<AtomicBool>) -> Vec<DateTime<Utc>> {
    let publisher = world.publisher().await;
    let mut ended = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        publisher.drain_outbox(soon()).await.unwrap();
        ended.push(sqlx::query_scalar("SELECT cronbox_now()").fetch_one(&world.pool).await.unwrap());
        tokio::time::sleep(POLL).await;
    }
    ended
}
