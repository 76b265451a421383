//! Postgres fails under the publishers: it is restarted, disconnected, or read-only.

use std::time::Duration;

use local::postgres::{Folder, Postgres, Purpose};
use local::stack::Database;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use stand_in::scheduler::faults::Plan;
use tests::Way;
use tokio::process::Command;

use crate::setup::{Field, Reply};

const LEASED: &str = "SELECT COUNT(*) FROM publications WHERE lease_owner IS NOT NULL";

/// A server that keeps committed data, and that a test can stop like `pg_ctl -m immediate`.
pub(crate) struct Server {
    folder: Folder,
    postgres: Postgres,
}

impl Server {
    pub(crate) async fn start() -> Server {
        let folder = Folder::create_temporary().unwrap();
        let again = Folder::create_at(folder.root().to_owned()).unwrap();
        let Database::Kept(postgres) = Database::open_kept(again).await.unwrap() else {
            panic!("a database that stays")
        };
        Server { folder, postgres }
    }

    /// Stops without a checkpoint and without ending sessions, so that committed data are only in the WAL. Then starts
    /// again.
    pub(crate) async fn restart_at_once(self, meanwhile: impl Future<Output = ()>) -> Server {
        let Server { folder, postgres } = self;
        let postmaster = folder.read_postmaster().unwrap().pid;
        let stopped = Command::new("kill").args(["-QUIT", &postmaster.to_string()]).status().await.unwrap();
        assert!(stopped.success());
        tokio::task::spawn_blocking(|| drop(postgres)).await.unwrap();
        meanwhile.await;
        let (folder, postgres) = tokio::task::spawn_blocking(move || {
            let postgres = Postgres::start_server(&folder, Purpose::Keep).unwrap();
            (folder, postgres)
        })
        .await
        .unwrap();
        Server { folder, postgres }
    }

    pub(crate) fn dsn(&self) -> String {
        self.postgres.dsn("cronbox")
    }

    pub(crate) fn remove(self) {
        let Server { folder, postgres } = self;
        drop(postgres);
        std::fs::remove_dir_all(folder.root()).unwrap();
    }
}

/// The server stops without a checkpoint, while publishers have leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_restarted_mid_drain_loses_nothing() {
    let mut server = Server::start().await;
    let mut way = Way::to(&server.dsn()).await;
    let mut field = Field::behind(&way, &server.postgres, 6).await;
    field.staff(3);
    for _ in 0..2 {
        // No call is answered, so that the server stops while leases exist.
        field.story.stand_in.scheduler.plan_faults(no_answer());
        for _ in 0..30 {
            assert_eq!(field.edit().await, Reply::Committed);
        }
        field.until(LEASED, |leased| leased > 0).await;
        server = server
            .restart_at_once(async {
                way.cut().await;
                assert_eq!(field.edit().await, Reply::Nothing, "an answered edit is durable");
            })
            .await;
        way.lead_to(&server.dsn());
        way.mend().await;
        field.story.stand_in.scheduler.plan_faults(Plan::default());
        until_back(&mut field).await;
    }
    field.settle().await;
    field.check_publications("after two restarts").await;
    field.end().await;
    server.remove();
}

/// After a failover, a name can lead to a standby, which still answers reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovering_server_gives_no_connection() {
    let server = Server::start().await;
    let signal = server.folder.data_folder().join("standby.signal");
    let server = server.restart_at_once(async { std::fs::write(&signal, "").unwrap() }).await;
    let mut reader = PgConnection::connect(&server.dsn()).await.unwrap();
    let is_recovering = sqlx::query_scalar::<_, bool>("SELECT pg_is_in_recovery()");
    assert!(is_recovering.fetch_one(&mut reader).await.unwrap());

    // Long enough for one login on a loaded machine, because the reason is that of a login.
    let options =
        db::Options { acquire_timeout: Duration::from_secs(5), ..app::config::database_options(&server.dsn(), 1) };
    let refused = db::connect_pool(&options).await.unwrap_err().to_string();
    assert!(
        refused.contains("its server is in recovery and cannot write; use a DSN that names the writer"),
        "{refused}"
    );
    server.remove();
}

fn no_answer() -> Plan {
    let plan = json!({"seed": 6, "slow_ms": 60_000, "faults": [{"kind": "slow", "chance": 1.0}]});
    serde_json::from_value(plan).unwrap()
}

async fn until_back(field: &mut Field) {
    while field.edit().await == Reply::Nothing {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// In some rounds, new connections are read-only, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backends_terminated_mid_drain_lose_nothing() {
    let mut field = Field::new(7).await;
    field.staff(3);
    let mut committed = 0;
    let mut is_read_only = false;
    for round in 0..20 {
        // While the database is read-only, an edit waits for a writer until it times out, so one edit is enough.
        for _ in 0..if is_read_only { 1 } else { 5 } {
            committed += u32::from(field.edit().await == Reply::Committed);
        }
        let was_read_only = is_read_only;
        // The setting affects new connections, also those of the app.
        is_read_only = round % 4 == 1;
        field.read_only(is_read_only).await;
        let terminated = field.terminate_backends().await;
        // A pool keeps no connection to a read-only database.
        assert!(terminated > 0 || was_read_only, "no connection was open in round {round}");
    }
    assert!(committed > 50, "{committed} edits");
    field.settle().await;
    field.check_publications("after twenty rounds").await;
    field.end().await;
}

impl Field {
    /// Terminates all backends, and returns how many. Uses a new connection, because the pool refuses connections to a
    /// read-only database.
    async fn terminate_backends(&self) -> i64 {
        let mut admin = PgConnection::connect(&self.story.owner_dsn()).await.unwrap();
        sqlx::query_scalar(
            "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity
              WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .fetch_one(&mut admin)
        .await
        .unwrap()
    }

    async fn read_only(&self, is_read_only: bool) {
        let setting =
            if is_read_only { "SET default_transaction_read_only = on" } else { "RESET default_transaction_read_only" };
        let mut admin = PgConnection::connect(&self.story.owner_dsn()).await.unwrap();
        let name: String = sqlx::query_scalar("SELECT current_database()::text").fetch_one(&mut admin).await.unwrap();
        // Explicitly read-write, because the setting can make this connection read-only.
        let alter = format!("BEGIN READ WRITE; ALTER DATABASE {name} {setting}; COMMIT");
        sqlx::raw_sql(AssertSqlSafe(alter)).execute(&mut admin).await.unwrap();
    }
}
