//! No workflow waits for another one: not for its slow call, and not for its locked row.

#[cfg(debug_assertions)]
use std::sync::Arc;
use std::time::Duration;

#[cfg(debug_assertions)]
use futures::FutureExt;
#[cfg(debug_assertions)]
use publisher::{Hook, Point};
use schedule::WorkflowId;
use serde_json::json;
use sqlx::{Connection, PgConnection};
use tests::PATIENCE;

use crate::entry::listen::Daemon;
use crate::world::{World, name};

#[cfg(debug_assertions)]
const TICK: Duration = Duration::from_secs(18);

/// A session that locks publications until [`unlock`].
async fn lock_publications(world: &World, workflows: &[WorkflowId]) -> PgConnection {
    let mut session = PgConnection::connect(&world.dsn).await.unwrap();
    sqlx::raw_sql("SET idle_in_transaction_session_timeout = 0; BEGIN").execute(&mut session).await.unwrap();
    let ids: Vec<i64> = workflows.iter().map(|workflow| workflow.0).collect();
    let lock = "SELECT 1 FROM publications WHERE workflow_id = ANY($1) ORDER BY workflow_id FOR UPDATE";
    sqlx::query(lock).bind(ids).execute(&mut session).await.unwrap();
    session
}

async fn unlock(mut session: PgConnection) {
    sqlx::raw_sql("COMMIT").execute(&mut session).await.unwrap();
}

/// Returns when EventBridge has this cron expression.
async fn until_applied(world: &World, workflow: WorkflowId, expression: &str) {
    let applied = async {
        while world.expression(workflow).await.as_deref() != Some(expression) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, applied).await.expect("the edit is applied");
}

async fn until_unleased(world: &World, workflow: WorkflowId) {
    let unleased = async {
        while world.publication(workflow).await.is_leased {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, unleased).await.expect("it is settled");
}

/// Makes a workflow due, and a suspect: a workflow whose calls may have crashed publishers.
async fn make_suspect(world: &World, workflow: WorkflowId) {
    let suspect = "UPDATE publications SET attempt_count = 15, spec_hash = NULL, due_at = cronbox_now()
                    WHERE workflow_id = $1";
    sqlx::query(suspect).bind(workflow.0).execute(&world.pool).await.unwrap();
}

async fn until_no_suspect(world: &World, workflow: WorkflowId) {
    let published = async {
        while world.publication(workflow).await.attempt_count > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, published).await.expect("the suspect is published");
}

/// How often a schedule was replaced since the last call of `take_calls`.
fn count_updates(world: &World, workflow: WorkflowId) -> usize {
    let calls = world.front.take_calls();
    calls.iter().filter(|call| call.name == name(workflow) && call.method == "PUT").count()
}

/// Also without a notification, because the daemon claims again while calls are in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_passes_a_slow_call() {
    let world = World::new().await;
    let [slow, other] = [world.create("0 9 * * *", "UTC").await, world.create("0 8 * * *", "UTC").await];
    world.front.delay(&name(slow));
    let daemon = Daemon::start(&world).await;
    world.front.arrival(&name(slow)).await;
    until_unleased(&world, other).await;

    for minute in 1..=3 {
        world.patch(other, json!({"cron_schedule": format!("{minute} 8 * * *")})).await;
        until_applied(&world, other, &format!("cron({minute} 8 * * ? *)")).await;
    }

    assert_eq!(world.schedule(slow).await, None, "its call is still open");
    assert!(world.publication(slow).await.is_leased);
    world.front.release();
    until_unleased(&world, slow).await;
    daemon.stop().await;
    world.assert_settled().await;
}

/// A session locks five publications while their calls are answered. No other workflow waits for the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_passes_five_locked_publications() {
    let world = World::new().await;
    let mut locked = Vec::new();
    for _ in 0..5 {
        let workflow = world.create("0 9 * * *", "UTC").await;
        world.front.delay(&name(workflow));
        locked.push(workflow);
    }
    let free = world.create("0 8 * * *", "UTC").await;
    let daemon = Daemon::start(&world).await;
    for workflow in &locked {
        world.front.arrival(&name(*workflow)).await;
    }
    until_unleased(&world, free).await;
    let session = lock_publications(&world, &locked).await;
    locked.iter().for_each(|_| world.front.release());
    for workflow in &locked {
        until_applied(&world, *workflow, "cron(0 9 * * ? *)").await;
    }

    for minute in 1..=3 {
        world.patch(free, json!({"cron_schedule": format!("{minute} 8 * * *")})).await;
        until_applied(&world, free, &format!("cron({minute} 8 * * ? *)")).await;
    }

    for workflow in &locked {
        assert!(world.publication(*workflow).await.is_leased, "its settle waits");
    }
    unlock(session).await;
    for workflow in &locked {
        until_unleased(&world, *workflow).await;
        assert_eq!(world.publication(*workflow).await.sync, "synced");
    }
    daemon.stop().await;
    world.assert_settled().await;
}

/// In a Lambda, a row stays locked for longer than the tick. The tick must still return its report.
#[cfg(debug_assertions)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_row_fails_no_drain() {
    let world = World::new().await;
    let [locked, free] = [world.create("0 9 * * *", "UTC").await, world.create("0 8 * * *", "UTC").await];
    world.front.delay(&name(locked));
    let stopwatch = publisher::Stopwatch::new_stopped();
    let (found_locked, mut is_found_locked) = tokio::sync::mpsc::unbounded_channel();
    let at = Arc::new(move |point| {
        if point == Point::P13 {
            found_locked.send(()).ok();
        }
        std::future::ready(()).boxed()
    });
    let publisher = world.publisher_hooked(Hook { at, stopwatch: stopwatch.clone(), seed: 0 }).await;
    let deadline = stopwatch.now() + TICK;
    let draining = tokio::spawn(async move { publisher.drain_outbox(deadline).await });
    world.front.arrival(&name(locked)).await;
    let session = lock_publications(&world, &[locked]).await;
    world.front.release();
    // The publisher retries the settle until the tick has no time left.
    is_found_locked.recv().await.unwrap();
    is_found_locked.recv().await.unwrap();
    stopwatch.advance_by(TICK);

    let report = draining.await.unwrap().expect("a locked row is no error");

    assert_eq!(report.remaining, 1);
    assert_eq!(world.publication(free).await.sync, "synced");
    unlock(session).await;
    // After the lease has expired, the next publisher repeats the call and settles it.
    world.skip(Duration::from_secs(61)).await;
    world.publish().await;
    assert_eq!(world.publication(locked).await.sync, "synced");
    world.assert_settled().await;
}

/// A renewal does not wait for a row lock, and renews the other leases of its batch.
#[cfg(debug_assertions)]
#[tokio::test]
async fn a_locked_row_stops_no_renewal() {
    let world = World::new().await;
    let [locked, other] = [world.create("0 9 * * *", "UTC").await, world.create("0 8 * * *", "UTC").await];
    for workflow in [locked, other] {
        world.front.delay(&name(workflow));
    }
    let at = Arc::new(|_| std::future::ready(()).boxed());
    let hook = Hook { at, stopwatch: publisher::Stopwatch::new_stopped(), seed: 0 };
    let daemon = Daemon::of(world.publisher_hooked(hook).await);
    for workflow in [locked, other] {
        world.front.arrival(&name(workflow)).await;
    }
    let session = lock_publications(&world, &[locked]).await;

    world.skip(Duration::from_secs(45)).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(20)).await;
    tokio::time::resume();

    let left =
        "SELECT EXTRACT(EPOCH FROM lease_until - cronbox_now())::float8 FROM publications WHERE workflow_id = $1";
    let left_of = async |workflow: WorkflowId| {
        sqlx::query_scalar::<_, Option<f64>>(left).bind(workflow.0).fetch_one(&world.pool).await
    };
    let renewed = async {
        while left_of(other).await.unwrap().is_some_and(|left| left < 30.0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, renewed).await.expect("the other lease is renewed");
    assert!(left_of(other).await.unwrap().is_some_and(|left| left > 30.0), "it is renewed, not settled");
    assert!(left_of(locked).await.unwrap().is_some_and(|left| left < 30.0), "the locked one is not");
    unlock(session).await;
    for _ in 0..2 {
        world.front.release();
    }
    for workflow in [locked, other] {
        until_unleased(&world, workflow).await;
    }
    daemon.stop().await;
    world.assert_settled().await;
}

/// After an error, a drain claims no more workflows. So it ends in spite of a locked publication, and the next one
/// publishes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_beside_locked_rows_stop_no_edit() {
    let world = World::new().await;
    let [locked, broken] = [world.create("0 9 * * *", "UTC").await, world.create("0 8 * * *", "UTC").await];
    world.publish().await;
    world.patch(locked, json!({"cron_schedule": "1 9 * * *"})).await;
    world.front.delay(&name(locked));
    let daemon = Daemon::start(&world).await;
    world.front.arrival(&name(locked)).await;
    let session = lock_publications(&world, &[locked]).await;
    world.front.release();
    until_applied(&world, locked, "cron(1 9 * * ? *)").await;

    let refuse = "CREATE SEQUENCE refused;
         GRANT USAGE, SELECT ON SEQUENCE refused TO PUBLIC;
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF (SELECT is_called FROM refused) THEN RETURN NEW; END IF;
             PERFORM nextval('refused');
             RAISE EXCEPTION 'refused';
         END $$;
         CREATE TRIGGER refuse BEFORE UPDATE OF lease_owner ON publications
             FOR EACH ROW WHEN (NEW.lease_owner IS NOT NULL) EXECUTE FUNCTION refuse()";
    sqlx::raw_sql(refuse).execute(&world.pool).await.unwrap();
    world.patch(broken, json!({"cron_schedule": "1 8 * * *"})).await;
    let refused = async {
        let claims = "SELECT is_called FROM refused";
        while !sqlx::query_scalar::<_, bool>(claims).fetch_one(&world.pool).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("a claim fails, once");

    until_applied(&world, broken, "cron(1 8 * * ? *)").await;
    assert!(world.publication(locked).await.is_leased, "the row is still locked");
    unlock(session).await;
    daemon.stop().await;
    world.skip(Duration::from_secs(61)).await;
    world.publish().await;
    world.assert_settled().await;
}

/// A locked row does not keep a drain open, so suspects, which come last, get their turn. The locked workflow is called
/// once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_row_delays_no_suspect() {
    let world = World::new().await;
    let [locked, suspect] = [world.create("0 9 * * *", "UTC").await, world.create("0 8 * * *", "UTC").await];
    world.publish().await;
    world.front.take_calls();
    world.patch(locked, json!({"cron_schedule": "1 9 * * *"})).await;
    world.front.delay(&name(locked));
    let daemon = Daemon::start(&world).await;
    world.front.arrival(&name(locked)).await;
    let session = lock_publications(&world, &[locked]).await;
    world.front.release();
    until_applied(&world, locked, "cron(1 9 * * ? *)").await;

    make_suspect(&world, suspect).await;
    until_no_suspect(&world, suspect).await;

    assert!(world.publication(locked).await.is_leased, "the row is still locked");
    unlock(session).await;
    until_unleased(&world, locked).await;
    assert_eq!(world.publication(locked).await.sync, "synced");
    daemon.stop().await;
    assert_eq!(count_updates(&world, locked), 1);
    world.assert_settled().await;
}

/// While a suspect is processed, the publisher claims no other workflow. So a suspect with a locked row must yield
/// its turn. It is called only once, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_suspect_delays_no_edit() {
    let world = World::new().await;
    let [suspect, other] = [world.create("0 9 * * *", "UTC").await, world.create("0 8 * * *", "UTC").await];
    world.publish().await;
    world.front.take_calls();
    world.patch(suspect, json!({"cron_schedule": "1 9 * * *"})).await;
    make_suspect(&world, suspect).await;
    world.front.delay(&name(suspect));
    let daemon = Daemon::start(&world).await;
    world.front.arrival(&name(suspect)).await;
    let session = lock_publications(&world, &[suspect]).await;
    world.front.release();
    until_applied(&world, suspect, "cron(1 9 * * ? *)").await;

    for minute in 1..=3 {
        world.patch(other, json!({"cron_schedule": format!("{minute} 8 * * *")})).await;
        until_applied(&world, other, &format!("cron({minute} 8 * * ? *)")).await;
    }

    assert!(world.publication(suspect).await.is_leased, "the row is still locked");
    unlock(session).await;
    until_unleased(&world, suspect).await;
    assert_eq!(world.publication(suspect).await.sync, "synced");
    daemon.stop().await;
    assert_eq!(count_updates(&world, suspect), 1);
    world.assert_settled().await;
}

/// While there is a suspect, each settle makes another workflow due again. The suspect must still get its turn.
#[cfg(debug_assertions)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_edits_delay_no_suspect() {
    let world = World::new().await;
    let [busy, suspect] = [world.create("0 9 * * *", "UTC").await, world.create("0 8 * * *", "UTC").await];
    world.publish().await;
    let again = "UPDATE publications SET due_at = cronbox_now()
                  WHERE workflow_id = $1 AND EXISTS (SELECT FROM publications WHERE attempt_count >= 15)";
    make_suspect(&world, suspect).await;
    sqlx::query(again).bind(busy.0).execute(&world.pool).await.unwrap();
    let stopwatch = publisher::Stopwatch::new_stopped();
    let (pool, clock) = (world.pool.clone(), stopwatch.clone());
    let at = Arc::new(move |point: Point| {
        let (pool, clock) = (pool.clone(), clock.clone());
        async move {
            if point == Point::P10 {
                clock.advance_by(Duration::from_secs(1));
                sqlx::query(again).bind(busy.0).execute(&pool).await.unwrap();
            }
        }
        .boxed()
    });
    let publisher = world.publisher_hooked(Hook { at, stopwatch: stopwatch.clone(), seed: 0 }).await;

    publisher.drain_outbox(stopwatch.now() + Duration::from_secs(300)).await.unwrap();

    assert_eq!(world.publication(suspect).await.attempt_count, 0, "the suspect had its turn");
    world.assert_settled().await;
}
