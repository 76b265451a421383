//! Any number of publishers publish each workflow once.

use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::json;
use tests::PATIENCE;

use crate::world::{World, name, soon, stopped};

/// The number of calls that one publisher may have in flight.
const IN_THE_AIR: usize = 64;

/// More than three publishers claim before a fourth one, whose second claim is slow, has claimed twice: 300 each.
const WORKFLOWS: usize = 1_300;

/// Each of many workflows is called exactly once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_publishers_share_workflows_evenly() {
    let world = World::new().await;
    let publishers = join_all((0..4).map(|_| world.publisher())).await;
    let mut tx = db::begin_transaction(&world.pool).await.unwrap();
    for _ in 0..WORKFLOWS {
        world.create_in(&mut tx, json!({"cron_schedule": "0 9 * * *"})).await;
    }
    tx.commit().await.unwrap();

    // No call is answered before each publisher has all its permitted calls in flight. So a fast publisher claims no
    // more than its share, and a slow one no less.
    world.front.delay_all();
    let drains =
        publishers.into_iter().map(|publisher| tokio::spawn(async move { publisher.drain_outbox(soon()).await }));
    let drains: Vec<_> = drains.collect();
    for _ in 0..3 {
        world.front.release_when_waiting(4 * IN_THE_AIR).await;
    }
    world.front.release_all();
    let reports: Vec<_> = join_all(drains).await.into_iter().map(|report| report.unwrap().unwrap()).collect();
    let created: Vec<u64> = reports.iter().map(|report| report.created).collect();

    assert_eq!(created.iter().sum::<u64>(), WORKFLOWS as u64, "{reports:?}");
    assert!(created.iter().all(|share| *share >= 3 * IN_THE_AIR as u64), "{created:?}");
    let mut calls = world.front.take_calls();
    assert_eq!(calls.len(), WORKFLOWS, "one call a workflow");
    calls.sort_by(|a, b| a.name.cmp(&b.name));
    calls.dedup_by(|a, b| a.name == b.name);
    assert_eq!(calls.len(), WORKFLOWS, "each another one");
    world.assert_settled().await;
}

#[tokio::test]
async fn a_burst_of_edits_is_one_call() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    for minute in 1..20 {
        world.patch(workflow, json!({"cron_schedule": format!("{minute} 9 * * *")})).await;
    }

    let report = world.publish().await;

    assert_eq!((report.processed, report.coalesced, report.created), (20, 19, 1));
    assert_eq!(world.calls(), [("POST".to_owned(), 200)]);
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(19 9 * * ? *)"));
    assert_eq!(world.publication(workflow).await.applied_revision, Some(20));
    world.assert_settled().await;
}

#[tokio::test]
async fn reverted_edits_cost_no_call() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.publish().await;
    world.front.take_calls();
    world.patch(workflow, json!({"cron_schedule": "1 9 * * *"})).await;
    world.patch(workflow, json!({"cron_schedule": "0 9 * * *"})).await;

    let report = world.publish().await;

    assert_eq!((report.processed, report.unchanged, report.updated), (2, 1, 0));
    assert_eq!(world.calls(), []);
    let publication = world.publication(workflow).await;
    assert_eq!((publication.sync.as_str(), publication.applied_revision), ("synced", Some(3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishers_are_listed_while_they_drain() {
    let world = World::new().await;
    let config = publisher::Config { batch_size: 16, ..world.config() };
    let publishers = join_all((0..4).map(|_| world.publisher_with(config.clone()))).await;
    for _ in 0..100 {
        world.create("0 9 * * *", "UTC").await;
    }
    let listed = async || {
        let live = "SELECT COUNT(*) FROM publishers WHERE live_until > cronbox_now()";
        sqlx::query_scalar::<_, i64>(live).fetch_one(&world.pool).await.unwrap()
    };

    // No call is answered before all four have claimed. How they use the number is tested in `rate.rs`.
    world.front.delay_all();
    let drains =
        publishers.into_iter().map(|publisher| tokio::spawn(async move { publisher.drain_outbox(soon()).await }));
    let drains: Vec<_> = drains.collect();
    let started = Instant::now();
    while listed().await < 4 {
        assert!(started.elapsed() < PATIENCE, "they are never listed");
        tokio::task::yield_now().await;
    }
    world.front.release_all();

    let created: u64 = join_all(drains).await.into_iter().map(|report| report.unwrap().unwrap().created).sum();
    assert_eq!((created, listed().await), (100, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_answers_delay_only_themselves() {
    let world = World::new().await;
    let mut workflows = Vec::new();
    for _ in 0..6 * IN_THE_AIR {
        workflows.push(world.create("0 9 * * *", "UTC").await);
    }
    // One in each of the first two batches, which is as far as a publisher claims ahead.
    let slow = [workflows[0], workflows[IN_THE_AIR + 1]];
    for workflow in slow {
        world.front.delay(&name(workflow));
    }
    let publisher = world.publisher().await;
    let draining = tokio::spawn(async move { publisher.drain_outbox(soon()).await.unwrap() });

    let settled = "SELECT COUNT(*) FROM publications WHERE applied_revision = 1 AND lease_owner IS NULL";
    let all_others = workflows.len() - slow.len();
    let others_are_settled = async {
        while sqlx::query_scalar::<_, i64>(settled).fetch_one(&world.pool).await.unwrap() < all_others as i64 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, others_are_settled).await.expect("the other workflows wait for the slow ones");

    for _ in slow {
        world.front.release();
    }
    assert_eq!(draining.await.unwrap().created, workflows.len() as u64);
    world.assert_settled().await;
}

/// This must not depend on the plan that Postgres chooses.
#[cfg(debug_assertions)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_never_exceed_their_batch() {
    let world = World::new().await;
    for _ in 0..5 {
        world.create("0 9 * * *", "UTC").await;
    }
    // With this plan, an UPDATE .. WHERE id IN (SELECT .. LIMIT 1 FOR UPDATE SKIP LOCKED) would run its sub-select once
    // for each row, and lock one more row each time.
    let database: String =
        sqlx::query_scalar("SELECT quote_ident(current_database())").fetch_one(&world.pool).await.unwrap();
    for way in ["hashjoin", "mergejoin", "material", "memoize", "hashagg", "sort"] {
        let without = format!("ALTER ROLE CURRENT_USER IN DATABASE {database} SET enable_{way} = off");
        sqlx::raw_sql(sqlx::AssertSqlSafe(without)).execute(&world.pool).await.unwrap();
    }
    sqlx::raw_sql("ANALYZE publications").execute(&world.pool).await.unwrap();

    let mut claimer = world.command();
    claimer.args(["--once"]).env("CRONBOX_BATCH_SIZE", "1").env("CRONBOX_FAULT", "P4:1:stop");
    let mut claimer = claimer.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    stopped(&mut claimer).await;

    let leased = "SELECT COUNT(*) FROM publications WHERE lease_owner IS NOT NULL";
    assert_eq!(sqlx::query_scalar::<_, i64>(leased).fetch_one(&world.pool).await.unwrap(), 1);
    claimer.kill().await.unwrap();
}

/// However often one publisher has failed, the backoff after an edit starts anew if another publisher has succeeded.
#[tokio::test]
async fn a_success_elsewhere_resets_the_backoff() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    let [first, second] = [world.publisher().await, world.publisher().await];
    let broken = crate::proxy::Answer::Refuse(500, "InternalServerException", "");
    world.front.always(&name(workflow), Some(broken));
    for round in 1..=8 {
        first.drain_outbox(soon()).await.unwrap();
        world.skip(Duration::from_secs(1000 * round)).await;
    }
    world.front.always(&name(workflow), None);
    assert_eq!(second.drain_outbox(soon()).await.unwrap().processed, 1);

    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    world.front.always(&name(workflow), Some(broken));
    first.drain_outbox(soon()).await.unwrap();
    // On a busy machine, the drain may try it more than once, but not as often as before.
    let failures = sqlx::query_scalar::<_, i32>("SELECT failures FROM publications").fetch_one(&world.pool).await;
    assert!((1..8).contains(&failures.unwrap()));
}

/// An error during a drain removes the publisher from the list, and a publisher that sweeps is on the list.
#[cfg(debug_assertions)]
#[tokio::test]
async fn a_failed_drain_leaves_the_list() {
    let world = World::new().await;
    world.create("0 9 * * *", "UTC").await;
    let admin = crate::database::pool(&world.dsn);
    let listed = async || {
        let count = "SELECT COUNT(*) FROM publishers";
        sqlx::query_scalar::<_, i64>(count).fetch_one(&world.pool).await.unwrap()
    };
    let break_it = move |point| {
        let admin = admin.clone();
        async move {
            if point == publisher::Point::P4 {
                sqlx::raw_sql("ALTER TABLE workflows RENAME TO gone").execute(&admin).await.unwrap();
            }
        }
    };
    let at = std::sync::Arc::new(move |point| futures::FutureExt::boxed(break_it(point)));
    let hook = publisher::Hook { at, stopwatch: publisher::Stopwatch::default(), seed: 0 };
    assert!(world.publisher_hooked(hook).await.drain_outbox(soon()).await.is_err());
    assert_eq!(listed().await, 0);
    sqlx::raw_sql("ALTER TABLE gone RENAME TO workflows").execute(&world.pool).await.unwrap();

    let (seen, pool) = (std::sync::Arc::new(std::sync::atomic::AtomicI64::new(0)), world.pool.clone());
    let note = std::sync::Arc::clone(&seen);
    let observe = move |point| {
        let (note, pool) = (std::sync::Arc::clone(&note), pool.clone());
        async move {
            if point == publisher::Point::C1 {
                let count = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM publishers").fetch_one(&pool).await;
                note.store(count.unwrap(), std::sync::atomic::Ordering::SeqCst);
            }
        }
    };
    let at = std::sync::Arc::new(move |point| futures::FutureExt::boxed(observe(point)));
    let hook = publisher::Hook { at, stopwatch: publisher::Stopwatch::default(), seed: 0 };
    world.publisher_hooked(hook).await.sweep_schedules(soon()).await.unwrap();
    assert_eq!((seen.load(std::sync::atomic::Ordering::SeqCst), listed().await), (1, 0));
}

/// The claim waits after its snapshot, before its locks. VOLATILE, because the planner evaluates a stable function, too.
const WAIT_IN_CLAIM: &str = "CREATE OR REPLACE FUNCTION cronbox_hold() RETURNS text LANGUAGE sql VOLATILE AS
    'SELECT CASE WHEN position(''-- claim:'' IN current_query()) > 0
                 THEN (SELECT NULL::text FROM (SELECT pg_advisory_xact_lock_shared(42)) AS waited) END'";

const MANY_SYNCED: &str = "
    INSERT INTO publications (workflow_id, desired_revision, applied_revision) SELECT n, 0, 0 FROM generate_series(1001, 5000) AS n;
    ANALYZE publications";

/// For each row that an edit has changed since the snapshot, Postgres evaluates the claim again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_during_a_claim_do_not_break_it() {
    let world = World::new().await;
    let config = publisher::Config { batch_size: 2, ..world.config() };
    let publisher = world.publisher_with(config).await;
    let mut workflows = Vec::new();
    for _ in 0..5 {
        workflows.push(world.create("0 9 * * *", "UTC").await);
    }
    // Among many workflows Postgres reads the claimed ones by their index, as in production.
    sqlx::raw_sql(MANY_SYNCED).execute(&world.pool).await.unwrap();
    let mut gate = db::begin_transaction(&world.pool).await.unwrap();
    sqlx::raw_sql(WAIT_IN_CLAIM).execute(&world.pool).await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock(42)").execute(&mut *gate).await.unwrap();
    let draining = tokio::spawn(async move { publisher.drain_outbox(soon()).await });
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND query LIKE '%-- claim:%'
                      AND datname = current_database()";
    let started = Instant::now();
    while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&world.pool).await.unwrap() == 0 {
        assert!(started.elapsed() < PATIENCE, "no claim waits");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for workflow in &workflows {
        world.patch(*workflow, json!({"cron_schedule": "1 9 * * *"})).await;
    }
    gate.commit().await.unwrap();
    let report = draining.await.unwrap().unwrap();
    assert_eq!((report.created, report.processed), (5, 10));
    world.assert_settled().await;
}
