//! The database that the histories of one thread share; it is emptied before each.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use chrono::{DateTime, Utc};
use db::PgPool;
use local::postgres::{Login, log_in_as};
use local::stack::Database;
use sqlx::{Connection, PgConnection};
use tokio::sync::MutexGuard;

use crate::leaked_secrets::watch_secret;

/// A migrated database with a settable clock.
pub(crate) struct Ground {
    pub(crate) admin: Admin,
    pub(crate) team: i64,
    dsn: String,
    idle: Mutex<Vec<Process>>,
    processes: AtomicUsize,
    started: AtomicUsize,
}

/// The torture's own connection, without the checks of the product's pool.
pub(crate) struct Admin(tokio::sync::Mutex<PgConnection>);

impl Admin {
    async fn connect(dsn: &str) -> Admin {
        Admin(tokio::sync::Mutex::new(PgConnection::connect(dsn).await.unwrap()))
    }

    pub(crate) async fn connection(&self) -> MutexGuard<'_, PgConnection> {
        self.0.lock().await
    }
}

/// A process as the database sees it: one connection with its `application_name`.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) pool: PgPool,
    login: Option<Login>,
}

/// Changes to the database of every history: `cronbox_now()` returns the time that the history sets.
const CLOCK: &str = "
    CREATE TABLE torture_clock (now timestamptz NOT NULL, latest timestamptz NOT NULL);
    INSERT INTO torture_clock VALUES ('epoch', 'epoch');
    GRANT SELECT ON torture_clock TO PUBLIC;
    CREATE OR REPLACE FUNCTION cronbox_now() RETURNS timestamptz
        LANGUAGE plpgsql STABLE PARALLEL SAFE AS 'BEGIN RETURN (SELECT now FROM torture_clock); END';
    CREATE FUNCTION torture_latest() RETURNS timestamptz
        LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT latest FROM torture_clock';
    CREATE TABLE vanished_workflows AS TABLE workflows;
    -- Backends die often: each statement is planned once in each, not five times.
    DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET plan_cache_mode = force_generic_plan', current_database()); END $$;
";

/// Not TRUNCATE, which takes longer than a short history. Ids start at 1, so that a history is reproducible.
const EMPTY: &str = "
    DELETE FROM workflows;
    DELETE FROM ledger;
    DELETE FROM runs;
    DELETE FROM run_results;
    DELETE FROM occurrences;
    DELETE FROM deleted_workflows;
    DELETE FROM notifications;
    DELETE FROM failure_streaks;
    DELETE FROM team_requested_fires;
    DELETE FROM decision_minutes;
    DELETE FROM run_end_minutes;
    UPDATE watchdog_shards SET decided_through = 'epoch', epoch = 0, lease_until = NULL;
    DELETE FROM publications;
    DELETE FROM outbox_events;
    DELETE FROM publishers;
    DELETE FROM sweeps;
    DELETE FROM sightings;
    DELETE FROM sweep_sightings;
    DELETE FROM orphans;
    DELETE FROM dead_letters;
    DELETE FROM rollout_queue;
    DELETE FROM vanished_workflows;
    DELETE FROM database_identity;
    INSERT INTO database_identity (uuid, environment) VALUES ('00000000-0000-4000-8000-000000000001', 'dev');
    DELETE FROM config_generation;
    INSERT INTO config_generation DEFAULT VALUES;
    SELECT setval(pg_get_serial_sequence('workflows', 'id'), 1, false);
    SELECT setval(pg_get_serial_sequence('outbox_events', 'id'), 1, false);
";

impl Ground {
    pub(crate) async fn new() -> Ground {
        let dsn = Database::clone_template().await.unwrap().dsn();
        watch_secret(dsn.split([':', '@']).nth(2).unwrap());
        let admin = Admin::connect(&dsn).await;
        sqlx::raw_sql(CLOCK).execute(&mut *admin.connection().await).await.unwrap();
        let team = "INSERT INTO teams (name, signing_secret, created_on) VALUES ('t', 's', cronbox_now()) RETURNING id";
        let team = sqlx::query_scalar(team).fetch_one(&mut *admin.connection().await).await.unwrap();
        Ground {
            admin,
            team,
            dsn,
            idle: Mutex::default(),
            processes: AtomicUsize::default(),
            started: AtomicUsize::default(),
        }
    }

    /// Empties the database, and runs `setup`.
    pub(crate) async fn begin(&self, setup: &'static str) {
        sqlx::raw_sql(EMPTY).execute(&mut *self.admin.connection().await).await.unwrap();
        sqlx::raw_sql(setup).execute(&mut *self.admin.connection().await).await.unwrap();
        // The temporary server has no autovacuum.
        if self.started.fetch_add(1, Ordering::Relaxed) % 32 == 31 {
            sqlx::raw_sql("VACUUM").execute(&mut *self.admin.connection().await).await.unwrap();
        }
    }

    /// Sets the clock at the start of a history.
    pub(crate) async fn start_clock(&self, now: DateTime<Utc>) {
        let start = "UPDATE torture_clock SET now = $1, latest = $1";
        sqlx::query(start).bind(now).execute(&mut *self.admin.connection().await).await.unwrap();
    }

    pub(crate) async fn set_clock(&self, now: DateTime<Utc>) {
        let set = "UPDATE torture_clock SET now = $1, latest = GREATEST(latest, $1)";
        sqlx::query(set).bind(now).execute(&mut *self.admin.connection().await).await.unwrap();
    }

    /// A process with its own connection and the login of its program; `None` = the owner. It may reuse the connection
    /// of an ended process, because a new backend is slow at first.
    pub(crate) fn process(&self, login: Option<Login>) -> Process {
        let mut all_idle = self.idle.lock().unwrap();
        if let Some(at) = all_idle.iter().rposition(|idle| idle.login == login) {
            return all_idle.remove(at);
        }
        let name = format!("process {}", self.processes.fetch_add(1, Ordering::Relaxed));
        let dsn = login.map_or_else(|| self.dsn.clone(), |login| log_in_as(&self.dsn, login));
        let pool = pool(&dsn, "torture");
        let options = (*pool.raw_pool().connect_options()).clone().application_name(&name);
        pool.raw_pool().set_connect_options(options);
        Process { name, pool, login }
    }

    /// The server's address.
    pub(crate) fn address(&self) -> SocketAddr {
        let host = self.dsn.rsplit_once('@').map_or(&*self.dsn, |(_, rest)| rest);
        host.split('/').next().unwrap_or_default().parse().unwrap()
    }

    /// An app that connects to the database at another address.
    pub(crate) fn process_by_way_of(&self, address: SocketAddr, name: String) -> Process {
        let dsn = log_in_as(&self.dsn, Login::App).replace(&self.address().to_string(), &address.to_string());
        let pool = pool(&dsn, "torture");
        let options = (*pool.raw_pool().connect_options()).clone().application_name(&name);
        pool.raw_pool().set_connect_options(options);
        Process { name, pool, login: Some(Login::App) }
    }

    /// Takes back a process that has ended normally.
    pub(crate) fn ended(&self, process: Process) {
        self.idle.lock().unwrap().push(process);
    }

    /// Whether a process waits for a row that another process has locked.
    pub(crate) async fn waits_for_lock(&self, name: &str) -> bool {
        sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = $1
                               AND datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0)",
        )
        .bind(name)
        .fetch_one(&mut *self.admin.connection().await)
        .await
        .unwrap()
    }

    /// Whether a process has an open transaction.
    pub(crate) async fn is_in_transaction(&self, name: &str) -> bool {
        sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = $1
                               AND datname = current_database() AND xact_start IS NOT NULL AND state <> 'active')",
        )
        .bind(name)
        .fetch_one(&mut *self.admin.connection().await)
        .await
        .unwrap()
    }

    /// Terminates a process's connections, and returns when their locks are free.
    pub(crate) async fn cut(&self, name: &str) {
        // With a timeout as its second argument, the function itself would check only every 100 ms.
        let cut = "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity
                    WHERE application_name = $1 AND datname = current_database()";
        while sqlx::query_scalar::<_, i64>(cut).bind(name).fetch_one(&mut *self.admin.connection().await).await.unwrap()
            > 0
        {
            tokio::task::yield_now().await;
        }
    }
}

fn pool(dsn: &str, application_name: &'static str) -> PgPool {
    let options =
        db::Options { acquire_timeout: tests::PATIENCE, application_name, ..app::config::database_options(dsn, 1) };
    db::create_pool(&options).unwrap()
}
