//! The database of a stack: one that is kept, or a clone of a template in a cluster that ends with the process.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use chrono::{DateTime, Utc};
use db::PgPool;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::OnceCell;

use crate::config::throwaway_folder;
use crate::postgres::{Folder, Login, Postgres, Purpose, log_in_as};

/// One per test process; the first stack that needs it starts it.
static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();

/// A temporary server with a migrated template.
///
/// A static is never dropped: the end of the process closes the server's pipe, and its supervisor removes the data.
struct Cluster {
    postgres: Postgres,
    numbered: AtomicU32,
}

/// The database of a stack.
pub enum Database {
    /// It is kept, with its own server
    Kept(Postgres),
    /// A clone of the template; dropped with the stack
    Clone(String),
    /// A migrated database of another owner, by its DSN
    Elsewhere(String),
    /// It was removed
    Gone,
}

const TEMPLATE: &str = "cronbox_template";

/// The only database of a server that is kept.
const KEPT: &str = "cronbox";

/// The table that a clone's `cronbox_now()` reads; it gets its time before the function reads it.
const SETTABLE_CLOCK: &str = "
    CREATE TABLE IF NOT EXISTS settable_clock (now timestamptz NOT NULL);
    GRANT SELECT ON settable_clock TO PUBLIC;
";

/// Makes a clone's `cronbox_now()` read that table instead of the machine's clock.
const USE_SETTABLE_CLOCK: &str = "
    CREATE OR REPLACE FUNCTION cronbox_now() RETURNS timestamptz
        LANGUAGE plpgsql STABLE PARALLEL SAFE
        AS 'BEGIN RETURN (SELECT now FROM settable_clock); END';
";

impl Database {
    /// Returns the database that is kept, created and migrated if needed.
    ///
    /// # Errors
    /// Fails if the server does not start, or if a migration fails.
    pub async fn open_kept(folder: Folder) -> Result<Database> {
        let postgres = start(folder, Purpose::Keep).await?;
        let mut admin = PgConnection::connect(&postgres.dsn("postgres")).await?;
        let made = sqlx::query("CREATE DATABASE cronbox").execute(&mut admin).await;
        if let Err(error) = made
            && error.as_database_error().is_none_or(|error| error.code().as_deref() != Some(DUPLICATE_DATABASE))
        {
            return Err(error).context("cannot create the database");
        }
        prepare_database(&postgres, KEPT).await?;
        Ok(Database::Kept(postgres))
    }

    /// Creates a clone of the template for one stack.
    ///
    /// # Errors
    /// Fails if the server does not start, or if the template cannot be cloned.
    pub async fn clone_template() -> Result<Database> {
        let cluster = CLUSTER.get_or_try_init(Cluster::start).await?;
        let name = format!("stack_{}", cluster.numbered.fetch_add(1, Ordering::Relaxed));
        let mut admin = PgConnection::connect(&cluster.postgres.dsn("postgres")).await?;
        // The name is generated from a number.
        let clone = AssertSqlSafe(format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}"));
        sqlx::query(clone).execute(&mut admin).await.context("cannot clone the template database")?;
        Ok(Database::Clone(name))
    }

    /// The DSN of the database, as its owner.
    pub fn dsn(&self) -> String {
        match (self, CLUSTER.get()) {
            (Database::Kept(postgres), _) => postgres.dsn(KEPT),
            (Database::Elsewhere(dsn), _) => dsn.clone(),
            (Database::Clone(name), Some(cluster)) => cluster.postgres.dsn(name),
            (Database::Clone(_), None) | (Database::Gone, _) => String::new(),
        }
    }

    /// The DSN of the database with a login of least privilege.
    pub fn dsn_as(&self, login: Login) -> String {
        log_in_as(&self.dsn(), login)
    }

    /// Removes a clone, even if it has connections; a database that is kept is not changed.
    ///
    /// # Errors
    /// Fails if the server cannot be reached.
    pub async fn remove_clone(&self) -> Result<()> {
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
        let postgres = start(Folder::create_temporary_in(&throwaway_folder())?, Purpose::ThrowAway).await?;
        let mut admin = PgConnection::connect(&postgres.dsn("postgres")).await?;
        sqlx::query("CREATE DATABASE cronbox_template").execute(&mut admin).await?;
        prepare_database(&postgres, TEMPLATE).await?;
        Ok(Cluster { postgres, numbered: AtomicU32::new(1) })
    }
}

/// Makes `cronbox_now()` return the time of `set_clock`.
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
    tokio::task::spawn_blocking(move || Postgres::start_server(&folder, purpose))
        .await
        .context("the thread that starts Postgres ended early")?
}

/// Migrates as an operator does: the groups, then their logins, then the timeouts of the logins.
///
/// # Errors
/// Fails if the server does not answer, or if a migration fails.
pub async fn prepare_database(postgres: &Postgres, database: &str) -> Result<()> {
    let options = app::config::database_options(&postgres.dsn(database), 1);
    app::migrate_database(&options, true).await?;
    if create_logins(postgres, database).await? > 0 {
        db::migrate_with_roles(&options).await?;
    }
    Ok(())
}

/// Creates the logins that do not exist; returns how many.
async fn create_logins(postgres: &Postgres, database: &str) -> Result<usize> {
    let mut admin = PgConnection::connect(&postgres.dsn(database)).await?;
    let mut created = 0;
    for login in Login::ALL {
        let exists = sqlx::query_scalar::<_, bool>("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)");
        if !exists.bind(login.name()).fetch_one(&mut admin).await? {
            let (name, password, group) = (login.name(), postgres.password(), login.group());
            // The password is hexadecimal, and the names are constants.
            let create = AssertSqlSafe(format!("CREATE ROLE {name} LOGIN PASSWORD '{password}' IN ROLE {group}"));
            sqlx::query(create).execute(&mut admin).await.context("cannot create a login")?;
            created += 1;
        }
    }
    admin.close().await?;
    Ok(created)
}
