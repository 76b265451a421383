//! The path to Postgres falls silent while a drain waits in a statement: no connection breaks, and no answer comes.

use std::time::Instant;

use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tests::{PATIENCE, Way};

use crate::entry::listen::{Daemon, pass_seconds, until_synced};
use crate::world::{World, name, soon};

/// Longer than the 20 s that a statement may be silent.
const SILENCE_SECS: u64 = 21;

/// A session during which every other session can only read publications.
async fn lock_out_writers(world: &World) -> PgConnection {
    let mut session = PgConnection::connect(&world.dsn).await.unwrap();
    let lock = "SET idle_in_transaction_session_timeout = 0; BEGIN; LOCK TABLE publications IN EXCLUSIVE MODE";
    sqlx::raw_sql(lock).execute(&mut session).await.unwrap();
    session
}

/// Returns when a settle waits for a lock: all backends that wait for one.
async fn until_settle_waits(world: &World) -> Vec<i32> {
    let waiting = "SELECT pid, COALESCE(query LIKE '%-- lock free%', FALSE) FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let began = Instant::now();
    loop {
        let backends: Vec<(i32, bool)> = sqlx::query_as(waiting).fetch_all(&world.pool).await.unwrap();
        if backends.iter().any(|(_, settles)| *settles) {
            return backends.into_iter().map(|(backend, _)| backend).collect();
        }
        assert!(began.elapsed() < PATIENCE, "no settle waits");
        tokio::task::yield_now().await;
    }
}

/// Ends sessions at the server's side, and returns when they are gone, with what they had locked.
async fn end_sessions(world: &World, backends: &[i32]) {
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid = ANY($1)";
    let began = Instant::now();
    while sqlx::query_scalar::<_, i64>(end).bind(backends).fetch_one(&world.pool).await.unwrap() > 0 {
        assert!(began.elapsed() < PATIENCE, "the sessions do not end");
        tokio::task::yield_now().await;
    }
}

/// The call has been answered and its settle waits for a lock when the host vanishes: the answer to the statement never
/// comes, new connections pass, and there is no other publisher.
#[tokio::test]
async fn settles_end_when_their_server_vanishes() {
    let world = World::new().await;
    // A sweep that ends wakes the drain, too; none is due for now.
    world.publisher().await.sweep_schedules(soon()).await.unwrap();
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.delay(&name(workflow));
    let way = Way::to(&world.dsn).await;
    let daemon = Daemon::of(world.publisher_by_way_of(&way.dsn(&world.dsn)).await);
    world.front.arrival(&name(workflow)).await;
    let writer = lock_out_writers(&world).await;
    world.front.release();
    let waiting = until_settle_waits(&world).await;

    way.silence();
    end_sessions(&world, &waiting).await;
    writer.close().await.unwrap();
    pass_seconds(SILENCE_SECS).await;

    until_synced(&world, workflow).await;
    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    until_synced(&world, workflow).await;
    assert_eq!(world.expression(workflow).await.as_deref(), Some("cron(0 10 * * ? *)"));
    daemon.stop().await;
    world.assert_settled().await;
}
