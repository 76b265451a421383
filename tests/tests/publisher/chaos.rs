//! Real publishers, several at once, and what happens to processes, to Postgres and to EventBridge.
//!
//! Whatever it is, at rest EventBridge shows what the database says: nothing is lost, stale,
//! orphaned or given up.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use local::postgres::{Folder, Postgres, Purpose};
use local::stand_in::{Options, Served, StandIn};
use schedule::{Clock, WorkflowId};
use serde_json::json;
use sqlx::PgPool;
use tests::Way;
use tokio::process::Child;

use crate::world::{World, at, name, soon};

const LEASE: Duration = Duration::from_secs(61);
const PATIENCE: Duration = Duration::from_secs(60);

/// The expression that each workflow's schedule must show, `None` = no schedule.
type Wanted = BTreeMap<WorkflowId, Option<String>>;

/// Workflows that are published, and then edited in every way.
async fn edited(world: &World, workflows: usize) -> Wanted {
    let mut ids = Vec::new();
    for _ in 0..workflows {
        ids.push(world.create("0 9 * * *", "UTC").await);
    }
    world.publish().await;
    let mut wanted = Wanted::new();
    for (nth, id) in ids.into_iter().enumerate() {
        let minute = nth % 60;
        let expression = match nth % 4 {
            0 => {
                world.patch(id, json!({"cron_schedule": null})).await;
                None
            }
            1 => {
                world.delete(id).await;
                None
            }
            _ => {
                world.patch(id, json!({"cron_schedule": format!("{minute} 10 * * *")})).await;
                Some(format!("cron({minute} 10 * * ? *)"))
            }
        };
        wanted.insert(id, expression);
        let new = world.create("0 7 * * *", "UTC").await;
        wanted.insert(new, Some("cron(0 7 * * ? *)".to_owned()));
    }
    wanted
}

/// Everything is as wanted at rest, and stays so once the verify passes that are owed are done.
async fn assert_in_step(world: &World, wanted: &Wanted, skipped: Duration, story: &str) {
    for later in [Duration::ZERO, Duration::from_secs(17 * 60)] {
        world.skip(skipped + later).await;
        world.publish().await;
        world.assert_settled().await;
        for (id, expression) in wanted {
            assert_eq!(world.expression(*id).await, *expression, "{story}: {}", name(*id));
            assert_eq!(world.publication(*id).await.sync, "synced", "{story}: {}", name(*id));
        }
    }
    let given_up = "SELECT COUNT(*) FROM outbox_events WHERE failed_on IS NOT NULL";
    assert_eq!(count(&world.pool, given_up).await, 0, "{story}: given up");
    let in_doubt = "SELECT COUNT(*) FROM publications WHERE verify_at IS NOT NULL";
    assert_eq!(count(&world.pool, in_doubt).await, 0, "{story}: in doubt");
}

async fn count(pool: &PgPool, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(pool).await.unwrap()
}

/// Returns when so many outbox rows are left open.
async fn until_open(pool: &PgPool, rows: i64) {
    let begun = Instant::now();
    let open = "SELECT COUNT(*) FROM outbox_events WHERE processed_on IS NULL AND failed_on IS NULL";
    while sqlx::query_scalar::<_, i64>(open).fetch_one(pool).await.unwrap() > rows {
        assert!(begun.elapsed() < PATIENCE, "the outbox is not drained");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn stop(daemons: Vec<Child>) {
    for mut daemon in daemons {
        daemon.kill().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_publishers_one_is_killed_at_any_point_and_nothing_is_lost() {
    for point in ["P0", "P1", "P2", "P3", "P4", "P5", "P6", "P8", "P9", "P10", "P11", "P12"] {
        for nth in [1, 2] {
            let world = World::with_latency(Duration::from_millis(2)).await;
            let wanted = edited(&world, 8).await;
            let fault = format!("{point}:{nth}:kill");
            let mut doomed = world.process(&["--once", "--batch-size", "4"], Some(&fault));
            // Its first claim is not to find everything taken.
            while count(&world.pool, "SELECT COUNT(*) FROM publications WHERE lease_owner IS NOT NULL").await == 0
                && doomed.try_wait().unwrap().is_none()
            {
                tokio::task::yield_now().await;
            }
            let others = [(); 2].map(|()| world.process(&["--once", "--batch-size", "4"], None));

            let doomed = doomed.wait_with_output().await.unwrap();

            // The second pass of a point may be another publisher's by then.
            let was_killed = doomed.status.signal() == Some(9);
            assert!(was_killed || (nth == 2 && doomed.status.success()), "{fault}: {doomed:?}");
            world.skip(LEASE).await;
            for other in others {
                let other = other.wait_with_output().await.unwrap();
                assert!(other.status.success(), "{fault}: {other:?}");
            }
            until_open(&world.pool, 0).await;
            assert_in_step(&world, &wanted, LEASE * 2, &fault).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_killed_while_its_requests_are_on_the_wire_is_taken_over_and_looked_after() {
    let world = World::new().await;
    let wanted = edited(&world, 8).await;
    for id in wanted.keys() {
        world.front.hold(&name(*id));
    }
    let mut doomed = world.process(&["--once"], None);
    let on_the_wire = *wanted.keys().next_back().unwrap();
    world.front.arrival(&name(on_the_wire)).await;
    doomed.kill().await.unwrap();
    // What it had sent arrives when everybody believes it dead.
    for _ in &wanted {
        world.front.release();
    }
    assert_in_step(&world, &wanted, LEASE, "killed at P7").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_cut_by_the_database_in_mid_drain_lose_nothing() {
    let world = World::with_latency(Duration::from_millis(15)).await;
    let wanted = edited(&world, 60).await;
    let daemons = vec![world.slow_daemon(), world.slow_daemon()];
    for rows_left in [100, 70, 40, 10] {
        until_open(&world.pool, rows_left).await;
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name = 'cronbox publisher'";
        sqlx::query(cut).execute(&world.pool).await.unwrap();
        world.skip(LEASE * u32::try_from(110 - rows_left).unwrap()).await;
    }
    until_open(&world.pool, 0).await;
    stop(daemons).await;
    assert_in_step(&world, &wanted, LEASE * 200, "pg_terminate_backend").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_crashes_in_mid_drain_and_comes_back_loses_nothing() {
    let folder = Folder::temporary().unwrap();
    let root = folder.root().to_owned();
    let postgres = Postgres::start(&folder, Purpose::Keep).unwrap();
    let mut way = Way::to(&postgres.dsn("postgres")).await;
    let dsn = way.dsn(&postgres.dsn("postgres"));
    let pool = crate::database::pool(&dsn);
    db::MIGRATOR.run(&pool).await.unwrap();
    let clock = Clock::fixed(at("2026-03-02T10:00:00Z"));
    let scheduler =
        local::scheduler::Options { latency: Duration::from_millis(15), ..local::scheduler::Options::default() };
    let options = Options { scheduler, ..Options::default() };
    let served = Served::anywhere(StandIn::new(options, clock.clone())).await.unwrap();
    let world = World::on(pool, dsn, &served.endpoint.clone(), Some(served), clock).await;
    let wanted = edited(&world, 60).await;
    let daemons = vec![world.slow_daemon(), world.slow_daemon()];
    until_open(&world.pool, 80).await;

    // SIGQUIT is what `pg_ctl -m immediate` sends: no checkpoint, connections cut, recovery at the start.
    way.cut().await;
    let server = folder.postmaster().unwrap().pid.to_string();
    assert!(std::process::Command::new("kill").args(["-QUIT", &server]).status().unwrap().success());
    drop(postgres);
    let postgres = Postgres::start(&folder, Purpose::Keep).unwrap();
    way.lead_to(&postgres.dsn("postgres"));
    way.mend().await;

    world.skip(LEASE).await;
    until_open(&world.pool, 0).await;
    stop(daemons).await;
    assert_in_step(&world, &wanted, LEASE * 2, "pg_ctl -m immediate").await;
    drop(postgres);
    std::fs::remove_dir_all(root).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_an_hour_without_eventbridge_gives_nobody_up_and_is_made_good_within_the_rate() {
    let world = World::new().await;
    let wanted = edited(&world, 50).await;
    let config = publisher::Config { api_tps: 50, ..world.config() };
    let publisher = world.publisher_with(publisher::Config { api_tps: 100_000, ..config.clone() }).await;
    world.front.away(true);
    for minute in 0..30 {
        world.skip(Duration::from_secs(60 * minute)).await;
        let report = publisher.drain(soon()).await.unwrap();
        assert_eq!((report.created + report.updated + report.deleted, report.failed), (0, 0), "minute {minute}");
    }
    assert_eq!(count(&world.pool, "SELECT COUNT(*) FROM publications WHERE attempt_count > 0").await, 0);

    world.front.away(false);
    world.front.take_calls();
    // Beyond the longest backoff.
    world.skip(Duration::from_secs(60 * 50)).await;
    let publisher = world.publisher_with(config).await;
    let begun = Instant::now();
    publisher.drain(soon()).await.unwrap();

    let calls = world.front.take_calls().len();
    let at_least = Duration::from_secs_f64((calls as f64 - 5.0) / 50.0);
    assert!(begun.elapsed() >= at_least, "{calls} calls in {:?}", begun.elapsed());
    assert_in_step(&world, &wanted, Duration::from_secs(60 * 50), "EventBridge away").await;
}
