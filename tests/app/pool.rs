//! The database pool: after a cancelled call, no transaction stays open in the pool; its limits and its use.

use std::time::Duration;

use db::{KeptConnection, PgPool, PoolUse, TransactionLimits};
use futures::future::join_all;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tests::{PATIENCE, Story};

const LEFT_OPEN: &str = "SELECT count(*) FROM pg_stat_activity
                          WHERE datname = current_database() AND application_name = 'cancelled'
                            AND state LIKE 'idle in transaction%'";

async fn pool(s: &Story, max_connections: u32) -> PgPool {
    let options = db::Options {
        acquire_timeout: PATIENCE,
        application_name: "cancelled",
        ..app::config::database_options(&s.owner_dsn(), max_connections)
    };
    db::connect_pool(&options).await.unwrap()
}

#[tokio::test]
async fn a_cancelled_begin_leaves_no_transaction_open() {
    let s = Story::today().await;
    let pool = pool(&s, 4).await;
    for round in 0..100 {
        for micros in 0..4 {
            // Cancels before the server receives the call, while it executes it, and after it has answered.
            let begin = db::begin_transaction(&pool);
            drop(tokio::time::timeout(Duration::from_micros(micros * round * 2), begin).await);
        }
        // When the test has all connections, each of them has been returned to the pool.
        let connections = join_all((0..4).map(|_| pool.acquire())).await;
        assert!(connections.iter().all(Result::is_ok));
        assert_eq!(s.count(LEFT_OPEN).await, 0, "round {round}");
    }
    let mut tx = db::begin_transaction(&pool).await.unwrap();
    sqlx::query("SELECT 1").execute(&mut *tx).await.unwrap();
    assert_eq!(s.count(LEFT_OPEN).await, 1, "the watch sees an open transaction");
    drop(tx);
    pool.close().await;
    s.end().await;
}

#[tokio::test]
async fn returned_connections_roll_back_open_transactions() {
    let s = Story::today().await;
    let pool = pool(&s, 1).await;
    // The state that sqlx leaves if a begin is cancelled after the server has executed it.
    let mut connection = pool.acquire().await.unwrap();
    sqlx::raw_sql("BEGIN; CREATE TABLE left_over ()").execute(&mut *connection).await.unwrap();
    assert_eq!(s.count(LEFT_OPEN).await, 1);
    drop(connection);
    // The pool has only one connection, so acquiring it shows that it was returned.
    let again = pool.acquire().await.unwrap();
    assert_eq!(s.count(LEFT_OPEN).await, 0);
    assert_eq!(s.count("SELECT count(*) FROM pg_tables WHERE tablename = 'left_over'").await, 0);
    drop(again);
    pool.close().await;
    s.end().await;
}

/// A caller may repeat failed statements at once, for example row by row, so `commit_or_rollback` must have unlocked its rows.
///
/// Postgres unlocks them after an error of its own. After an error in the client, such as an unknown value, it does
/// not.
#[tokio::test]
async fn rollback_frees_locks_of_failed_statements() {
    let s = Story::today().await;
    let pool = pool(&s, 2).await;
    s.execute("CREATE TABLE numbers (n INTEGER); INSERT INTO numbers VALUES (1)").await;
    let lock = "SELECT n FROM numbers FOR UPDATE NOWAIT";
    let mut failed = db::begin_transaction(&pool).await.unwrap();
    sqlx::query(lock).execute(&mut *failed).await.unwrap();
    failed.commit_or_rollback::<()>(Err(sqlx::Error::RowNotFound)).await.unwrap_err();
    let dsn = s.owner_dsn();
    // This runtime is blocked meanwhile, so the pool, which rolls back what it finds open, has no turn.
    let locked = std::thread::spawn(move || {
        let another = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        another.block_on(async {
            let mut connection = PgConnection::connect(&dsn).await.unwrap();
            sqlx::raw_sql(lock).execute(&mut connection).await
        })
    });
    locked.join().unwrap().expect("the row is free");
    pool.close().await;
    s.end().await;
}

/// The limits of one purpose must not outlive its transaction: behind a pooler, the connection is another client's then.
#[tokio::test]
async fn transactions_begin_with_limits_of_their_pool() {
    let s = Story::today().await;
    let of_login = pool(&s, 1).await;
    let limits =
        TransactionLimits { lock: Some(Duration::from_millis(1_234)), statement: Some(Duration::from_secs(7)) };
    let limited = of_login.clone().with_limits(limits);
    let before = limits_of(&mut of_login.acquire().await.unwrap()).await;
    let mut tx = db::begin_transaction(&limited).await.unwrap();
    assert_eq!(limits_of(&mut tx).await, "1234ms 7s");
    tx.commit().await.unwrap();
    assert_eq!(limits_of(&mut limited.acquire().await.unwrap()).await, before);
    let mut tx = db::begin_transaction(&of_login).await.unwrap();
    assert_eq!(limits_of(&mut tx).await, before);
    tx.rollback().await.unwrap();
    of_login.close().await;
    s.end().await;
}

async fn limits_of(connection: &mut db::PgConnection) -> String {
    let limits = "SELECT current_setting('lock_timeout') || ' ' || current_setting('statement_timeout')";
    sqlx::query_scalar(limits).fetch_one(connection).await.unwrap()
}

/// A worker's next batch needs no other connection, unless the last one left its transaction open.
#[tokio::test]
async fn a_worker_keeps_its_connection() {
    let s = Story::today().await;
    let pool = pool(&s, 1).await;
    let mut worker = KeptConnection::of(pool.clone());
    let mut tx = worker.begin().await.unwrap();
    let first = session(&mut tx).await;
    worker.commit(tx).await.unwrap();
    assert_eq!(pool.current_use().used, 1, "it waits for the next batch");
    assert_eq!(session(worker.acquire().await.unwrap()).await, first);
    let mut tx = worker.begin().await.unwrap();
    assert_eq!(session(&mut tx).await, first);
    sqlx::raw_sql("CREATE TABLE left_over ()").execute(&mut *tx).await.unwrap();
    drop(tx);
    // The pool has only one connection, so this one was returned.
    assert_eq!(session(worker.acquire().await.unwrap()).await, first);
    assert_eq!(s.count("SELECT count(*) FROM pg_tables WHERE tablename = 'left_over'").await, 0);
    drop(worker);
    drop(pool.acquire().await.unwrap());
    pool.close().await;
    s.end().await;
}

/// However many batches follow each other, another caller gets its turn.
#[tokio::test]
async fn a_worker_keeps_no_connection_from_others() {
    let s = Story::today().await;
    let pool = pool(&s, 1).await;
    let mut worker = KeptConnection::of(pool.clone());
    worker.acquire().await.unwrap();
    let mut other = Box::pin(pool.acquire());
    assert!(futures::poll!(&mut other).is_pending());
    let mut next = Box::pin(worker.acquire());
    assert!(futures::poll!(&mut next).is_pending(), "it is the other's turn");
    let turn = async { session(&mut other.await.unwrap()).await };
    let (first, next) = futures::join!(turn, async { session(next.await.unwrap()).await });
    assert_eq!(first, next, "the worker gets it back");
    drop(worker);
    pool.close().await;
    s.end().await;
}

/// A session may end between two batches. The pool finds that out as soon as the last proof no longer counts. Before that,
/// one statement may fail, but no transaction, because nothing of it has happened.
#[tokio::test]
async fn a_worker_does_not_keep_a_dead_connection() {
    let s = Story::today().await;
    let pool = pool(&s, 1).await;
    let mut worker = KeptConnection::of(pool.clone());
    let first = session(worker.acquire().await.unwrap()).await;
    end_session(&s, first).await;
    // On a slow machine the proof may no longer count, and then it succeeds.
    drop(sqlx::raw_sql("SELECT 1").execute(worker.acquire().await.unwrap()).await);
    let second = session(worker.acquire().await.unwrap()).await;
    end_session(&s, second).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_millis(500)).await;
    tokio::time::resume();
    let third = session(worker.acquire().await.unwrap()).await;
    end_session(&s, third).await;
    let mut tx = worker.begin().await.unwrap();
    let fourth = session(&mut tx).await;
    tx.rollback().await.unwrap();
    assert!(first != second && second != third && third != fourth, "{first}, {second}, {third}, {fourth}");
    drop(worker);
    pool.close().await;
    s.end().await;
}

async fn session(connection: &mut db::PgConnection) -> i32 {
    sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(connection).await.unwrap()
}

async fn end_session(s: &Story, session: i32) {
    // It waits for the end of the session.
    let ended = sqlx::query("SELECT pg_terminate_backend($1, 60000)").bind(session).execute(&s.pool).await;
    ended.unwrap();
}

/// A plan that looks expensive is not compiled: that takes longer than the statement.
#[tokio::test]
async fn statements_are_not_compiled() {
    let s = Story::today().await;
    let pool = pool(&s, 1).await;
    assert_eq!(sqlx::query_scalar::<_, String>("SHOW jit").fetch_one(&pool).await.unwrap(), "off");
    pool.close().await;
    s.end().await;
}

/// A wait that is cancelled is over.
#[tokio::test]
async fn pools_count_who_waits() {
    let s = Story::today().await;
    let pool = pool(&s, 1).await;
    let only_one = pool.acquire().await.unwrap();
    let mut waiting = Box::pin(pool.acquire());
    assert!(futures::poll!(&mut waiting).is_pending());
    let all_used = PoolUse { limit: 1, idle: 0, used: 1, waiting: 0, timed_out: 0 };
    assert_eq!(pool.current_use(), PoolUse { waiting: 1, ..all_used });
    drop(waiting);
    assert_eq!(pool.current_use(), all_used);
    drop(only_one);
    pool.close().await;
    s.end().await;
}

/// Edits, lists and jobs use up their own connections only.
#[tokio::test]
async fn each_purpose_has_its_connections() {
    let s = Story::today().await;
    let pools = &s.app().pools;
    let mut used = Vec::new();
    for pool in [&pools.work, &pools.edits, &pools.reads] {
        for _ in 0..pool.raw_pool().options().get_max_connections() {
            used.push(pool.acquire().await.unwrap());
        }
    }
    let invoke = "/api/v1/cron/workflows/999999:invoke";
    s.scheduler_key().post(invoke, &json!({"scheduled_time": "2026-03-02T09:00:00Z"})).await.expect(410);
    drop(pools.leases.acquire().await.unwrap());
    let most: u32 = pools.by_name().iter().map(|(_, pool)| pool.raw_pool().options().get_max_connections()).sum();
    assert_eq!(most, s.app().config.db_max_connections);
    drop(used);
    s.editor().get("/api/v1/workflows").await.expect(200);
    s.end().await;
}
