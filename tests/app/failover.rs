//! Connections to a server that is read-only, or that has vanished.

use std::time::{Duration, Instant};

use db::Listener;
use local::stack::Database;
use schedule::WorkflowId;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::{PATIENCE, Story, Way};

/// A server whose new sessions are read-only, as after a failover.
pub(super) struct Server {
    admin: PgConnection,
    database: String,
}

impl Server {
    pub(super) async fn of(s: &Story) -> Server {
        let mut admin = PgConnection::connect(&s.owner_dsn()).await.unwrap();
        let database = sqlx::query_scalar("SELECT current_database()::text").fetch_one(&mut admin).await.unwrap();
        Server { admin, database }
    }

    /// Makes new connections read-only, and ends the existing ones.
    pub(super) async fn turn_read_only(&mut self) {
        self.alter("SET default_transaction_read_only = on").await;
        self.end_sessions().await;
    }

    /// Ends all sessions but its own.
    pub(super) async fn end_sessions(&mut self) {
        let ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                      WHERE datname = current_database() AND pid <> pg_backend_pid()";
        sqlx::query(ended).execute(&mut self.admin).await.unwrap();
    }

    pub(super) async fn turn_writable(&mut self) {
        self.alter("RESET default_transaction_read_only").await;
    }

    async fn alter(&mut self, setting: &str) {
        let alter = AssertSqlSafe(format!("ALTER DATABASE {} {setting}", self.database));
        sqlx::raw_sql(alter).execute(&mut self.admin).await.unwrap();
    }
}

async fn ready_becomes(s: &Story, status: u16) {
    let began = Instant::now();
    while s.admin().get("/readyz").await.status != status {
        assert!(began.elapsed() < PATIENCE, "/readyz never answers {status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// After a failover, a name may still lead to the old writer. The pool must not keep connections that are made then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_connections_are_never_kept() {
    let s = Story::with_daemon().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    let mut server = Server::of(&s).await;
    server.turn_read_only().await;
    ready_becomes(&s, 503).await;
    let path = format!("/api/v1/workflows/{wf}");
    s.editor().merge_patch(&path, &json!({"cron_schedule": "0 10 * * *"})).await.refused(
        503,
        "database_unavailable",
        None,
    );
    let (invoke, fire) =
        (format!("/api/v1/cron/workflows/{wf}:invoke"), json!({"scheduled_time": "2026-03-02T09:00:00Z"}));
    s.scheduler_key().post(&invoke, &fire).await.refused(503, "database_unavailable", None);

    server.turn_writable().await;
    ready_becomes(&s, 200).await;
    s.editor().merge_patch(&path, &json!({"cron_schedule": "0 11 * * *"})).await.expect(200);
    published(&s, wf, "cron(0 11 * * ? *) UTC ENABLED").await;
    assert_eq!(s.scheduler_key().post(&invoke, &fire).await.expect(200).json["reason"], "not_due");
    s.end().await;
}

/// A session becomes read-only, as when its server is demoted. The pool must close it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_turn_read_only_are_closed() {
    let s = Story::today().await;
    let mut connection = s.pool.acquire().await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *connection).await.unwrap();
    sqlx::raw_sql("SET default_transaction_read_only = on").execute(&mut *connection).await.unwrap();
    let error = sqlx::raw_sql("UPDATE jobs SET locked_by = locked_by").execute(&mut *connection).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().unwrap(), "25006");
    drop(connection);
    // Not through the pool, because the pool checks the session before it hands it out.
    let mut admin = PgConnection::connect(&s.owner_dsn()).await.unwrap();
    let lives = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)";
    let began = Instant::now();
    while sqlx::query_scalar::<_, bool>(lives).bind(pid).fetch_one(&mut admin).await.unwrap() {
        assert!(began.elapsed() < PATIENCE, "the session lives on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    s.end().await;
}

/// The server refuses one write and looks writable again: no proof of the session would show it, only the error does.
#[tokio::test]
async fn read_only_errors_close_their_session() {
    let s = Story::today().await;
    let pool = db::connect_pool(&app::config::database_options(&s.dsn(), 1)).await.unwrap();
    let pid = "SELECT pg_backend_pid()";
    let refused: i32 = sqlx::query_scalar(pid).fetch_one(&pool).await.unwrap();
    let write = "DO $$ BEGIN RAISE unique_violation; END $$";
    sqlx::raw_sql(write).execute(&pool).await.unwrap_err();
    assert_eq!(
        sqlx::query_scalar::<_, i32>(pid).fetch_one(&pool).await.unwrap(),
        refused,
        "another error closes nothing"
    );

    let write = "DO $$ BEGIN RAISE read_only_sql_transaction; END $$";
    let error = sqlx::raw_sql(write).execute(&pool).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().unwrap(), "25006");
    assert_ne!(
        sqlx::query_scalar::<_, i32>(pid).fetch_one(&pool).await.unwrap(),
        refused,
        "it may lead to the old writer"
    );
    pool.close().await;
    s.end().await;
}

/// The server is demoted while a connection is idle, and nothing fails on it.
#[tokio::test]
async fn idle_sessions_prove_that_they_write() {
    let s = Story::today().await;
    let pool = db::connect_pool(&app::config::database_options(&s.dsn(), 1)).await.unwrap();
    let pid = "SELECT pg_backend_pid()";
    let demoted: i32 = sqlx::query_scalar(pid).fetch_one(&pool).await.unwrap();
    sqlx::raw_sql("SET default_transaction_read_only = on").execute(&pool).await.unwrap();
    let next: i32 = sqlx::query_scalar(pid).fetch_one(&pool).await.unwrap();
    assert_ne!(next, demoted, "a session that cannot write is not handed out");
    pool.close().await;
    s.end().await;
}

/// The server claims to be writable but refuses writes, so only a write can show that it is not ready.
#[tokio::test]
async fn readiness_needs_a_successful_write() {
    let s = Story::today().await;
    s.admin().get("/readyz").await.expect(200);
    s.execute(
        "CREATE FUNCTION refuse_write() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE read_only_sql_transaction; END $$;
         CREATE TRIGGER refuse_write BEFORE UPDATE ON jobs FOR EACH STATEMENT EXECUTE FUNCTION refuse_write()",
    )
    .await;
    let connection = sqlx::query_scalar::<_, String>("SHOW transaction_read_only").fetch_one(&s.pool).await.unwrap();
    assert_eq!(connection, "off", "its connections are handed out");
    // The last answer of the database is cached for a second.
    ready_becomes(&s, 503).await;
    s.admin().get("/readyz").await.refused(503, "database_unavailable", None);
    s.execute("DROP TRIGGER refuse_write ON jobs; DROP FUNCTION refuse_write()").await;
    s.admin().get("/readyz").await.expect(200);
    s.end().await;
}

pub(super) async fn published(s: &Story, wf: WorkflowId, expected: &str) {
    let began = Instant::now();
    while s.schedule(wf) != expected {
        assert!(began.elapsed() < PATIENCE, "never published: {}", s.schedule(wf));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The publisher and the app lock a row and then read the latest committed data. That needs READ COMMITTED.
#[tokio::test]
async fn isolation_does_not_follow_the_database() {
    let s = Story::today().await;
    Server::of(&s).await.alter("SET default_transaction_isolation = 'repeatable read'").await;
    let pool = db::connect_pool(&app::config::database_options(&s.dsn(), 1)).await.unwrap();
    let isolation: String = sqlx::query_scalar("SHOW transaction_isolation").fetch_one(&pool).await.unwrap();
    assert_eq!(isolation, "read committed");
    pool.close().await;
    s.end().await;
}

/// Tokio's paused clock advances when no task can proceed, so the test reaches the time limit at once.
#[tokio::test]
async fn statements_end_when_the_server_vanishes() {
    let database = Database::clone_template().await.unwrap();
    let way = Way::to(&database.dsn()).await;
    let pool = db::connect_pool(&app::config::database_options(&way.dsn(&database.dsn()), 4)).await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    let mut transaction = db::begin_transaction(&pool).await.unwrap();
    way.silence();
    tokio::time::pause();
    for used in [&mut *connection, &mut *transaction] {
        let statement = tokio::time::timeout(PATIENCE, sqlx::query("SELECT 1").execute(used)).await;
        let error = statement.expect("a limit on our side").unwrap_err();
        assert!(matches!(error, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut));
    }
    tokio::time::resume();
    drop((connection, transaction));

    // New connections are answered, and the pool hands out none of the silent ones.
    for _ in 0..4 {
        assert_eq!(sqlx::query_scalar::<_, i32>("SELECT 1").fetch_one(&pool).await.unwrap(), 1);
    }
    pool.close().await;
    database.remove_clone().await.unwrap();
}

#[tokio::test]
async fn listeners_notice_a_server_that_vanished() {
    let database = Database::clone_template().await.unwrap();
    let way = Way::to(&database.dsn()).await;
    let pool = db::connect_pool(&app::config::database_options(&way.dsn(&database.dsn()), 2)).await.unwrap();
    let mut listener = Listener::connect(&pool, "somewhere").await.unwrap();
    way.silence();
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    assert!(tokio::time::timeout(PATIENCE, listener.next_notification()).await.expect("a probe").is_err());
    assert!(began.elapsed() <= Duration::from_secs(60), "by the clock that ran ahead");
    tokio::time::resume();

    let mut listener = Listener::connect(&pool, "somewhere").await.unwrap();
    let notifier = db::connect_pool(&app::config::database_options(&database.dsn(), 1)).await.unwrap();
    sqlx::query("NOTIFY somewhere").execute(&notifier).await.unwrap();
    tokio::time::timeout(PATIENCE, listener.next_notification()).await.expect("a notification").unwrap();
    database.remove_clone().await.unwrap();
}
