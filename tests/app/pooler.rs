//! The app and the publisher behind the real pgbouncer, in both of its modes.

use std::process::Stdio;
use std::time::Duration;

use chrono::{DurationRound as _, TimeDelta};
use db::{KeptConnection, PgPool, Pooler, TransactionLimits};
use futures::future::join_all;
use local::stack::StackOptions;
use schedule::WorkflowId;
use serde_json::json;
use tests::{Api, PgBouncer, Story};

use crate::failover::{Server, published};
use crate::startup::{program, run, serve_with, stop};

/// A pool whose statements pass `pooler`. The login of an owner has no timeouts of its own.
async fn pool(dsn: &str, pooler: &PgBouncer, mode: Pooler, max_connections: u32) -> PgPool {
    let options = app::config::database_options(&pooler.dsn(dsn), max_connections);
    let options = db::Options { pooler: mode, acquire_timeout: tests::PATIENCE, ..options };
    db::connect_pool(&options).await.unwrap()
}

/// An edit, its publication, a fire and the runs, of programs that reach the database through a pooler.
async fn run_story_through(mode: &str) {
    let s = Story::with(StackOptions { app: |config| config.executor_slots = 0, ..StackOptions::default() }).await;
    let pooler = PgBouncer::start(&s.owner_dsn(), mode).await;
    let (mut serving, url) = serve_with(&pooler.dsn(&s.dsn()), &[("CRONBOX_POOLER", mode)]).await;
    let editor = Api::new(&url, &s.keys.editor);
    let body = |name: &str, cron: &str| json!({"name": name, "cron_schedule": cron, "timezone": "UTC", "action": {"type": "log", "message": "hi"}});
    let yearly = WorkflowId(editor.post("/api/v1/workflows", &body("yearly", "0 9 1 1 *")).await.expect(201).id());

    let publisher = || {
        let mut command = program("cronbox-publisher");
        command.envs(s.publisher_environment()).env("CRONBOX_POOLER", mode);
        command.env("CRONBOX_DB_DSN", pooler.dsn(&s.publisher_dsn())).env("NO_COLOR", "1");
        command
    };
    let once = run(publisher().arg("--once")).await;
    assert!(once.status.success(), "{}", String::from_utf8_lossy(&once.stderr));
    assert_eq!(s.schedule(yearly), "cron(0 9 1 1 ? *) UTC ENABLED");

    // The daemon listens past the pooler, with the login of the other DSN.
    let (_, place) = s.publisher_dsn().rsplit_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let mut daemon = publisher();
    daemon.arg("--listen").env("CRONBOX_DB_DIRECT_DSN", format!("postgres://{place}"));
    let mut daemon = daemon.stderr(Stdio::null()).spawn().unwrap();
    let listening = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                        AND usename = 'cronbox_publisher_login' AND query LIKE 'LISTEN%'";
    s.until(listening, 1).await;
    editor
        .merge_patch(&format!("/api/v1/workflows/{yearly}"), &json!({"cron_schedule": "0 10 1 1 *"}))
        .await
        .expect(200);
    published(&s, yearly, "cron(0 10 1 1 ? *) UTC ENABLED").await;
    stop(&mut daemon).await;

    // It is never published, because EventBridge would also fire it when the minute comes.
    let minutely = WorkflowId(editor.post("/api/v1/workflows", &body("minutely", "* * * * *")).await.expect(201).id());
    let next = s.clock.now().duration_trunc(TimeDelta::minutes(1)).unwrap() + TimeDelta::minutes(1);
    let path = format!("/api/v1/cron/workflows/{minutely}:invoke");
    Api::new(&url, &s.keys.scheduler).post(&path, &json!({"scheduled_time": next})).await.expect(202);
    editor.post(&format!("/api/v1/schedules/{yearly}:fire"), &json!({})).await.expect(202);
    s.until("SELECT count(*) FROM runs WHERE state = 'succeeded'", 2).await;
    s.archive(minutely).await;
    stop(&mut serving).await;
    s.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_works_through_session_poolers() {
    run_story_through("session").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_works_through_transaction_poolers() {
    run_story_through("transaction").await;
}

/// Many connections share few sessions, which keep neither names of statements nor settings.
#[tokio::test]
async fn statements_bring_their_settings_along() {
    let s = Story::today().await;
    let settings = "SELECT current_setting('statement_timeout') || ' ' || current_setting('lock_timeout') || ' '
                        || current_setting('idle_in_transaction_session_timeout') || ' ' || current_setting('jit') || ' ' || $1";
    for (mode, name) in [(Pooler::Session, "session"), (Pooler::Transaction, "transaction")] {
        let pooler = PgBouncer::start(&s.owner_dsn(), name).await;
        let pool = pool(&s.owner_dsn(), &pooler, mode, 8).await;
        for _ in 0..5 {
            let shown = (0..8).map(|_| sqlx::query_scalar::<_, String>(settings).bind("x").fetch_one(&pool));
            for shown in join_all(shown).await {
                assert_eq!(shown.unwrap(), "15s 5s 10s off x", "{name}");
            }
        }
        let mut tx = db::begin_transaction(&pool).await.unwrap();
        let shown = sqlx::query_scalar::<_, String>(settings).bind("x").fetch_one(&mut *tx).await.unwrap();
        assert_eq!(shown, "15s 5s 10s off x", "{name}");
        tx.commit().await.unwrap();
        // After a transaction, too, if its connection was kept.
        let mut worker = KeptConnection::of(pool.clone());
        let tx = worker.begin().await.unwrap();
        worker.commit(tx).await.unwrap();
        let kept = worker.acquire().await.unwrap();
        let shown = sqlx::query_scalar::<_, String>(settings).bind("x").fetch_one(kept).await.unwrap();
        assert_eq!(shown, "15s 5s 10s off x", "{name}");
        drop(worker);
        pool.close().await;
    }
    s.end().await;
}

/// The limits of a pool follow the general ones, in the message that begins a transaction. In transaction mode each
/// statement has one.
#[tokio::test]
async fn limits_of_pools_pass_through_poolers() {
    let s = Story::today().await;
    let shown = "SELECT current_setting('lock_timeout') || ' ' || current_setting('statement_timeout')";
    let limits =
        TransactionLimits { lock: Some(Duration::from_millis(1_234)), statement: Some(Duration::from_secs(7)) };
    for (mode, name, alone) in
        [(Pooler::Session, "session", "5s 15s"), (Pooler::Transaction, "transaction", "1234ms 7s")]
    {
        let pooler = PgBouncer::start(&s.owner_dsn(), name).await;
        let general = pool(&s.owner_dsn(), &pooler, mode, 1).await;
        let limited = general.clone().with_limits(limits);
        let mut tx = db::begin_transaction(&limited).await.unwrap();
        assert_eq!(sqlx::query_scalar::<_, String>(shown).fetch_one(&mut *tx).await.unwrap(), "1234ms 7s", "{name}");
        tx.commit().await.unwrap();
        for (pool, expected) in [(&limited, alone), (&general, "5s 15s")] {
            assert_eq!(sqlx::query_scalar::<_, String>(shown).fetch_one(pool).await.unwrap(), expected, "{name}");
        }
        general.close().await;
    }
    s.end().await;
}

/// A read has its level and its limits from the message that begins its transaction, and leaves none of them behind.
#[tokio::test]
async fn reads_bring_their_settings_along() {
    let s = Story::today().await;
    let shown =
        "SELECT current_setting('transaction_isolation') || ' ' || current_setting('transaction_read_only') || ' '
                     || current_setting('statement_timeout') || ' ' || current_setting('enable_sort')";
    for (mode, name) in [(Pooler::Session, "session"), (Pooler::Transaction, "transaction")] {
        let pooler = PgBouncer::start(&s.owner_dsn(), name).await;
        let pool = pool(&s.owner_dsn(), &pooler, mode, 1).await;
        let mut tx = db::begin_read(&pool).await.unwrap();
        let within = sqlx::query_scalar::<_, String>(shown).fetch_one(&mut *tx).await.unwrap();
        assert_eq!(within, "repeatable read on 2s off", "{name}");
        tx.commit().await.unwrap();
        let after = sqlx::query_scalar::<_, String>(shown).fetch_one(&pool).await.unwrap();
        assert_eq!(after, "read committed off 15s on", "{name}");
        pool.close().await;
    }
    s.end().await;
}

/// Each statement has a transaction of its own there, which must end whatever becomes of the statement.
#[tokio::test]
async fn no_statement_leaves_a_transaction_open() {
    let s = Story::today().await;
    let pooler = PgBouncer::start(&s.owner_dsn(), "transaction").await;
    let pool = pool(&s.dsn(), &pooler, Pooler::Transaction, 1).await;
    let mut connection = pool.acquire().await.unwrap();
    let failed = sqlx::query("SELECT 1 / $1").bind(0).execute(&mut *connection).await.unwrap_err();
    assert_eq!(failed.as_database_error().unwrap().code().unwrap(), "22012");
    let slow = sqlx::query("SELECT pg_sleep(3)").execute(&mut *connection);
    assert!(tokio::time::timeout(Duration::from_millis(50), slow).await.is_err(), "it is cancelled");
    let one = sqlx::query_scalar::<_, i32>("SELECT 1").fetch_one(&mut *connection).await;
    assert_eq!(one.unwrap(), 1);
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                   AND usename = 'cronbox_app_login' AND state LIKE 'idle in transaction%'";
    s.until(open, 0).await;
    // An open transaction would have been ended by its limit, together with its session.
    let two = sqlx::query_scalar::<_, i32>("SELECT 2").fetch_one(&mut *connection).await;
    assert_eq!(two.unwrap(), 2);
    drop(connection);
    pool.close().await;
    s.end().await;
}

/// A pooler that ignores the startup packet's options would take all timeouts away without an error. The login of the
/// owner has none of its own.
#[tokio::test]
async fn lost_timeouts_refuse_the_connection() {
    let s = Story::today().await;
    let ignoring = "ignore_startup_parameters = options,extra_float_digits";
    let pooler = PgBouncer::start_with(&s.owner_dsn(), "transaction", ignoring).await;
    let options = app::config::database_options(&pooler.dsn(&s.owner_dsn()), 1);
    // The pool connects again until its time is over. On a loaded machine, not even one connection is made in the first second.
    let mut refused = String::new();
    for secs in [1, 10, 100] {
        let options = db::Options { acquire_timeout: Duration::from_secs(secs), ..options.clone() };
        refused = db::connect_pool(&options).await.unwrap_err().to_string();
        if !refused.contains("does not answer") {
            break;
        }
    }
    assert!(refused.contains("a pooler has dropped the session's timeouts; set CRONBOX_POOLER"), "{refused}");
    s.end().await;
}

/// The next transaction may run on another server than the last one, so each proves that its server can write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_transaction_proves_its_server() {
    let s = Story::today().await;
    let pooler = PgBouncer::start(&s.owner_dsn(), "transaction").await;
    let pool = pool(&s.dsn(), &pooler, Pooler::Transaction, 1).await;
    let mut connection = pool.acquire().await.unwrap();
    let mut server = Server::of(&s).await;
    server.turn_read_only().await;
    let read = sqlx::query_scalar::<_, i32>("SELECT 1").fetch_one(&mut *connection).await;
    assert!(matches!(read, Err(sqlx::Error::Io(_) | sqlx::Error::Database(_))), "{read:?}");
    drop(connection);

    server.turn_writable().await;
    // pgbouncer keeps its sessions, which an old writer would have ended.
    server.end_sessions().await;
    assert_eq!(sqlx::query_scalar::<_, i32>("SELECT 1").fetch_one(&pool).await.unwrap(), 1);
    pool.close().await;
    s.end().await;
}
