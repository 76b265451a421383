//! The publisher compiles crons with the zone data of its environment, also if they change while it runs.

use std::time::Instant;

use schedule::{WorkflowId, ZoneSet};
use serde_json::json;
use tests::PATIENCE;
use workflows::audit::Edit;
use workflows::zones::{self, MissingTimezones};

use crate::world::World;

/// A zone set in which Vancouver is at +05:45, with its own version.
fn other_zones() -> ZoneSet {
    let bundled = ZoneSet::bundled();
    let files = bundled.names().map(|name| {
        let source = if name == "America/Vancouver" { "Asia/Kathmandu" } else { name };
        (name.to_owned(), bundled.tzif(source).unwrap().to_vec())
    });
    ZoneSet::from_files(&"2199z".parse().unwrap(), files).unwrap()
}

impl World {
    /// The first published expression that is not `before`.
    async fn next_expression(&self, id: WorkflowId, before: Option<&str>) -> String {
        let started = Instant::now();
        loop {
            match self.expression(id).await {
                Some(expression) if Some(expression.as_str()) != before => return expression,
                _ => assert!(started.elapsed() < PATIENCE, "nothing is published after {before:?}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

/// More schedules than the brake lets change without a reason. Only the zone data have changed, and no edit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_zone_data_republish_open_crons() {
    let world = World::new().await;
    let edit = Edit::without_request("cli", world.clock.now());
    zones::store_bundled(&world.pool, &edit).await.unwrap();
    let daemon = world.process(&["--listen"], None);
    let mut ids = Vec::new();
    for _ in 0..12 {
        ids.push(world.create("0 * * * *", "America/Vancouver").await);
    }
    for id in &ids {
        assert_eq!(world.next_expression(*id, None).await, "cron(0 * * * ? *)");
    }
    zones::store_zones(&world.pool, &other_zones(), MissingTimezones::Refuse, &edit).await.unwrap();
    let (operator, started) = (world.publisher().await, Instant::now());
    // A sweep of a process that has not loaded the data yet finds no difference.
    for id in ids {
        while world.expression(id).await.as_deref() != Some("cron(15 * * * ? *)") {
            operator.request_sweep("test").await.unwrap();
            assert!(started.elapsed() < PATIENCE, "no sweep changes the schedule");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
    drop(daemon);
}

/// A separate process, because a process uses only one set of zone data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_follows_the_zone_data() {
    let world = World::new().await;
    let daemon = world.process(&["--listen"], None);
    let id = world.create("0 * * * *", "America/Vancouver").await;
    let mut expression = world.next_expression(id, None).await;
    assert_eq!(expression, "cron(0 * * * ? *)");
    let edit = Edit::without_request("cli", world.clock.now());
    zones::store_zones(&world.pool, &other_zones(), MissingTimezones::Refuse, &edit).await.unwrap();
    // It checks for new zone data now and then when it publishes.
    let started = Instant::now();
    for minute in (1..44).cycle() {
        world.patch(id, json!({"cron_schedule": format!("{minute} * * * *")})).await;
        expression = world.next_expression(id, Some(&expression)).await;
        if expression == format!("cron({} * * * ? *)", minute + 15) {
            break;
        }
        assert_eq!(expression, format!("cron({minute} * * * ? *)"));
        assert!(started.elapsed() < PATIENCE, "it does not load the zone data");
    }
    drop(daemon);
}
