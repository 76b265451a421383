//! The database of a stack: one that stays, or a clone of a template in a cluster that ends with the process.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use chrono::{DateTime, Utc};
use db::PgPool;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::OnceCell;

use crate::postgres::{Folder, Postgres, Purpose};

/// One per test process, started by the first stack that needs it.
static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();

/// A throw-away server with a migrated template.
///
/// Nothing drops a static: the end of the process closes the server's pipe, and its keeper clears up.
struct Cluster {
    postgres: Postgres,
    numbered: AtomicU32,
}

/// Where a stack keeps its rows.
pub enum Database {
    /// It stays, with its own server
    Kept(Postgres),
    /// A clone of the template; dropped with the stack
    Clone(String),
    /// Somebody else's, migrated, by its DSN
    Elsewhere(String),
    /// It was removed
    Gone,
}

const TEMPLATE: &str = "cronbox_template";

/// The one database of a server that stays.
const KEPT: &str = "cronbox";

/// Where a clone's coordination clock is set; before it is used, it has its time.
const SETTABLE_CLOCK: &str = "CREATE TABLE IF NOT EXISTS settable_clock (now timestamptz NOT NULL)";

/// Has a clone's coordination clock be set, not read from the machine.
const USE_SETTABLE_CLOCK: &str = "
    CREATE OR REPLACE FUNCTION cronbox_now() RETURNS timestamptz
        LANGUAGE sql STABLE PARALLEL SAFE
        AS 'SELECT now FROM settable_clock';
";

impl Database {
    /// The database that stays, made and migrated as needed.
    ///
    /// # Errors
    /// Fails if the server does not start, or if a migration fails.
    pub async fn kept(folder: Folder) -> Result<Database> {
        let postgres = start(folder, Purpose::Keep).await?;
        let mut admin = PgConnection::connect(&postgres.dsn("postgres")).await?;
        let made = sqlx::query("CREATE DATABASE cronbox").execute(&mut admin).await;
        if let Err(error) = made
            && error.as_database_error().is_none_or(|error| error.code().as_deref() != Some(DUPLICATE_DATABASE))
        {
            return Err(error).context("cannot make the database");
        }
        migrate(&postgres.dsn(KEPT)).await?;
        Ok(Database::Kept(postgres))
    }

    /// A clone of the template for one stack.
    ///
    /// # Errors
    /// Fails if the server does not start, or if the template cannot be cloned.
    pub async fn of_template() -> Result<Database> {
        let cluster = CLUSTER.get_or_try_init(Cluster::start).await?;
        let name = format!("stack_{}", cluster.numbered.fetch_add(1, Ordering::Relaxed));
        let mut admin = PgConnection::connect(&cluster.postgres.dsn("postgres")).await?;
        // The name is ours, made of a number.
        let clone = AssertSqlSafe(format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}"));
        sqlx::query(clone).execute(&mut admin).await.context("cannot clone the template database")?;
        Ok(Database::Clone(name))
    }

    /// How to reach it.
    pub fn dsn(&self) -> String {
        match (self, CLUSTER.get()) {
            (Database::Kept(postgres), _) => postgres.dsn(KEPT),
            (Database::Elsewhere(dsn), _) => dsn.clone(),
            (Database::Clone(name), Some(cluster)) => cluster.postgres.dsn(name),
            (Database::Clone(_), None) | (Database::Gone, _) => String::new(),
        }
    }

    /// Removes a clone, whoever is still connected; what stays is left alone.
    ///
    /// # Errors
    /// Fails if the server cannot be reached.
    pub async fn remove(&self) -> Result<()> {
        let (Database::Clone(name), Some(cluster)) = (self, CLUSTER.get()) else { return Ok(()) };
        let mut admin = PgConnection::connect(&cluster.postgres.dsn("postgres")).await?;
        let drop = AssertSqlSafe(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
        sqlx::query(drop).execute(&mut admin).await.context("cannot drop the stack's database")?;
        Ok(())
    }
}

/// Postgres's code for a name that is taken.
const DUPLICATE_DATABASE: &str = "42P04";

impl Cluster {
    async fn start() -> Result<Cluster> {
        let postgres = start(Folder::temporary()?, Purpose::ThrowAway).await?;
        let mut admin = PgConnection::connect(&postgres.dsn("postgres")).await?;
        sqlx::query("CREATE DATABASE cronbox_template").execute(&mut admin).await?;
        migrate(&postgres.dsn(TEMPLATE)).await?;
        Ok(Cluster { postgres, numbered: AtomicU32::new(1) })
    }
}

/// Makes `cronbox_now()` show what `set_clock` says.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(super) async fn take_clock(pool: &PgPool, now: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::raw_sql(SETTABLE_CLOCK).execute(pool).await?;
    let first = "INSERT INTO settable_clock SELECT $1 WHERE NOT EXISTS (SELECT FROM settable_clock)";
    sqlx::query(first).bind(now).execute(pool).await?;
    set_clock(pool, now).await?;
    sqlx::raw_sql(USE_SETTABLE_CLOCK).execute(pool).await.map(drop)
}

/// Sets `cronbox_now()`.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(super) async fn set_clock(pool: &PgPool, now: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query("UPDATE settable_clock SET now = $1").bind(now).execute(pool).await.map(drop)
}

async fn start(folder: Folder, purpose: Purpose) -> Result<Postgres> {
    tokio::task::spawn_blocking(move || Postgres::start(&folder, purpose))
        .await
        .context("Postgres's start was cut off")?
}

async fn migrate(dsn: &str) -> Result<()> {
    let mut connection = PgConnection::connect(dsn).await?;
    db::MIGRATOR.run(&mut connection).await.context("cannot migrate the database")?;
    Ok(connection.close().await?)
}
