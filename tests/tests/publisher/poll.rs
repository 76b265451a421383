//! Many publishers that poll, and many edits: each stands soon, and none is called for twice.

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

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_edits_stand_within_two_seconds_each_by_eight_publishers() {
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
    for poll in polling {
        poll.await.unwrap();
    }
    world.publish().await;

    let processed = "SELECT processed_on FROM outbox_events ORDER BY id OFFSET $1";
    let first = i64::try_from(WORKFLOWS).unwrap();
    let processed: Vec<DateTime<Utc>> = sqlx::query_scalar(processed).bind(first).fetch_all(&world.pool).await.unwrap();
    let mut took: Vec<f64> = processed
        .iter()
        .zip(&committed)
        .map(|(processed, committed)| (*processed - *committed).as_seconds_f64())
        .collect();
    took.sort_by(f64::total_cmp);
    let p99 = took[EDITS * 99 / 100];
    assert!(p99 < 2.0, "p99 {p99} s");
    let calls = world.calls().len();
    assert!(calls <= EDITS, "{calls} calls for {EDITS} edits");
    println!("p50 {:.3} s, p99 {p99:.3} s, {calls} calls", took[EDITS / 2]);
    world.assert_settled().await;
}

/// Drains, waits, and drains again; once more when nothing is edited any longer.
async fn poll(world: Arc<World>, is_over: Arc<AtomicBool>) {
    let publisher = world.publisher().await;
    while !is_over.load(Ordering::Relaxed) {
        publisher.drain(soon()).await.unwrap();
        tokio::time::sleep(POLL).await;
    }
}
