//! SIGKILL of one publisher at each of its fault points, while the others continue.

use std::os::unix::process::ExitStatusExt;

use local::stack::GROUP;
use serde_json::json;
use stand_in::scheduler::faults::Plan;
use tokio::process::Child;

use crate::setup::{BUSY, Field, Reply};

const SWEEP: &str =
    "INSERT INTO sweeps (requested_by, requested_on) VALUES ('chaos', cronbox_now()) ON CONFLICT DO NOTHING";
const OPEN_SWEEPS: &str = "SELECT COUNT(*) FROM sweeps WHERE finished_on IS NULL";
/// Sweeps that began at the present time. While the clock stands, no other sweep is due after one of them.
const SWEPT_NOW: &str = "SELECT COUNT(*) FROM sweeps WHERE finished_on IS NOT NULL AND started_on = cronbox_now()";

/// P7, a request in flight, lies inside the SDK, so another test covers it.
const POINTS: [&str; 12] = ["P0", "P1", "P2", "P3", "P4", "P5", "P6", "P8", "P9", "P10", "P11", "P12"];

/// Makes edits until the victim has died.
async fn until_dead(field: &mut Field, mut victim: Child, point: &str) {
    for _ in 0..5_000 {
        if let Some(status) = victim.try_wait().unwrap() {
            assert_eq!(status.signal(), Some(9), "{point}: it ended by itself");
            return;
        }
        assert_eq!(field.edit().await, Reply::Committed);
    }
    panic!("{point} is never passed");
}

async fn one_dies_at_every_point(seed: u64) {
    let mut field = Field::new(seed).await;
    field.staff(2);
    for (round, point) in (seed..).zip(POINTS) {
        let nth = 1 + round % 3;
        let victim = field.publisher(Some(&format!("{point}:{nth}:kill")));
        until_dead(&mut field, victim, point).await;
        for _ in 0..5 {
            field.edit().await;
        }
        field.settle().await;
        field.check_publications(&format!("seed {seed}, after {point}:{nth}")).await;
    }
    field.end().await;
}

/// One of three publishers is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_at_each_point_lose_nothing() {
    one_dies_at_every_point(1).await;
}

/// The same with other edits, at another pass of each point.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_by_another_seed_lose_nothing() {
    one_dies_at_every_point(2).await;
}

/// All publishers are killed at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_with_requests_in_flight_lose_nothing() {
    for (seed, kind) in [(3, "slow"), (4, "timeout_after"), (5, "late")] {
        let mut field = Field::new(seed).await;
        let plan = json!({"seed": seed, "slow_ms": 60_000, "faults": [{"kind": kind, "chance": 1.0}]});
        field.story.stand_in.scheduler.plan_faults(serde_json::from_value(plan).unwrap());
        field.staff(3);
        until_on_the_wire(&field).await;
        field.kill_all().await;
        field.story.stand_in.scheduler.plan_faults(Plan::default());
        for _ in 0..20 {
            assert_eq!(field.edit().await, Reply::Committed);
        }
        field.staff(3);
        field.settle().await;
        field.check_publications(&format!("killed with {kind} calls on the wire")).await;
        field.end().await;
    }
}

/// A publisher is killed before or in the transaction with its repairs. Other publishers make them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repairs_of_killed_sweeps_are_made_later() {
    let mut field = Field::new(6).await;
    field.staff(1);
    field.settle().await;
    for point in ["C1", "C2"] {
        // The lease of a sweep that a killed publisher leaves does not end while the clock stands. A publisher checks every 5 s whether
        // a sweep is due, so the one that is due now must be over: it could begin just before the kill.
        field.until(SWEPT_NOW, |swept| swept > 0).await;
        field.until(OPEN_SWEEPS, |open| open == 0).await;
        field.kill_all().await;
        let deleted_manually = field.names().await.swap_remove(0);
        let delete = field.story.scheduler.delete_schedule().group_name(GROUP).name(&deleted_manually);
        delete.send().await.unwrap();
        sqlx::query(SWEEP).execute(&field.story.pool).await.unwrap();
        let mut victim = field.publisher(Some(&format!("{point}:1:kill")));
        assert_eq!(victim.wait().await.unwrap().signal(), Some(9), "{point}: it ended by itself");
        assert!(!field.names().await.contains(&deleted_manually), "{point}: it was killed too late");

        field.staff(2);
        field.settle().await;
        // The first sweep may have started before the deletion; the second has not.
        for _ in 0..2 {
            sqlx::query(SWEEP).execute(&field.story.pool).await.unwrap();
            field.until(OPEN_SWEEPS, |open| open == 0).await;
        }
        field.until(BUSY, |busy| busy == 0).await;
        field.check_publications(&format!("a sweeper was killed at {point}")).await;
    }
    field.end().await;
}

async fn until_on_the_wire(field: &Field) {
    let on_the_wire = || {
        let progress = serde_json::to_value(field.story.stand_in.scheduler.faults_injected()).unwrap();
        progress["faults"][0]["injected"].as_u64().unwrap()
    };
    let began = std::time::Instant::now();
    while on_the_wire() < 5 {
        assert!(began.elapsed() < tests::PATIENCE, "no call is ever made");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}
