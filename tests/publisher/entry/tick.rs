//! A tick has time for each of its parts: edits, the sweep, and the dead letters.

#[cfg(debug_assertions)]
use std::sync::Arc;
use std::time::Duration;

#[cfg(debug_assertions)]
use futures::FutureExt;
use publisher::Publisher;
#[cfg(debug_assertions)]
use publisher::{Config, Hook, Point, Stopwatch};
use tests::PATIENCE;

use crate::world::{LIST, World, soon};

impl World {
    /// The message of the queue is mirrored, and an operator requests its discard.
    async fn request_discard(&self, publisher: &Publisher) {
        publisher.mirror_dead_letters().await;
        let request = "UPDATE dead_letters SET state = 'discard_requested' WHERE state = 'present'";
        assert_eq!(sqlx::query(request).execute(&self.pool).await.unwrap().rows_affected(), 1);
    }

    async fn is_discarded(&self) -> bool {
        let discarded = "SELECT EXISTS (SELECT FROM dead_letters WHERE state = 'discarded')";
        sqlx::query_scalar(discarded).fetch_one(&self.pool).await.unwrap()
    }
}

/// The sweep of a long list takes the rest of many ticks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_wait_for_no_sweep() {
    let world = World::new().await;
    let publisher = world.publisher_with(world.config_with_dead_letter()).await;
    world.request_discard(&publisher).await;
    world.front.delay(LIST);
    let ticking = tokio::spawn(async move { publisher.run_tick(soon()).await.unwrap() });
    world.front.arrival(LIST).await;
    let discarded = async {
        while !world.is_discarded().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, discarded).await.expect("the request is done during the sweep");
    world.front.release();
    ticking.await.unwrap();
}

/// A bulk edit takes longer than a tick. EventBridge's answers take four of its fifty seconds each.
#[cfg(debug_assertions)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_leaves_time_for_the_rest() {
    let world = World::new().await;
    for _ in 0..20 {
        world.create("0 9 * * *", "UTC").await;
    }
    let stopwatch = Stopwatch::new_stopped();
    let clock = stopwatch.clone();
    let at = Arc::new(move |point| {
        if point == Point::P8 {
            clock.advance_by(Duration::from_secs(4));
        }
        std::future::ready(()).boxed()
    });
    let hook = Hook { at, stopwatch: stopwatch.clone(), seed: 0 };
    let config = Config { batch_size: 1, api_concurrency: 1, ..world.config_with_dead_letter() };
    let publisher = world.publisher_hooked_with(config, hook).await;
    world.request_discard(&publisher).await;

    let report = publisher.run_tick(stopwatch.now() + Duration::from_secs(50)).await.unwrap();

    assert!(world.is_discarded().await, "{report:?}");
    let swept = "SELECT COUNT(*) FROM sweeps WHERE finished_on IS NOT NULL";
    assert_eq!(sqlx::query_scalar::<_, i64>(swept).fetch_one(&world.pool).await.unwrap(), 1, "{report:?}");
    assert!(report.created > 5 && report.remaining > 0, "it publishes until the end, and has not done all: {report:?}");
}
