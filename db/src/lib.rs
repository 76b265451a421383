//! Steps 1 to 3 and 7 of 7: how the app and the publisher reach Postgres.
//!
//! Connections, transactions and the schema's migrations live here; queries live with their nouns.
//! Every connection carries its own timeouts in its startup packet, so that a process that dies
//! without a word holds no lock for longer than a few seconds, whatever the server's defaults.

mod begin;
mod tls;

use std::time::Duration;

use anyhow::{Context, bail};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

pub use begin::begin;
pub use tls::{ca_file, with_ca};

/// The schema: `migrations/NNNN_noun.sql`, forward only.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("../migrations");

/// How to reach the database.
#[derive(Clone)]
pub struct Options {
    /// `postgres://user:password@host:port/database`; without `sslmode`, TLS is verified unless the host is this machine
    pub dsn: String,
    /// Connections at most.
    pub max_connections: u32,
    /// How long a caller waits for a connection before it is told that the database is away.
    pub acquire_timeout: Duration,
    /// What `pg_stat_activity` shows.
    pub application_name: &'static str,
}

/// Opens a pool and proves that it reaches the database.
///
/// # Errors
/// One sentence that says what to do: a DSN that cannot be read, or a database that does not answer.
pub async fn connect(options: &Options) -> anyhow::Result<PgPool> {
    let pool = pool(options)?;
    match pool.acquire().await {
        Ok(_) => Ok(pool),
        Err(sqlx::Error::PoolTimedOut) => bail!(
            "the database at {} does not answer: start it, or correct the DSN",
            address(&connect_options(options)?)
        ),
        Err(error) => Err(error).with_context(|| {
            connect_options(options).map_or_else(
                |error| error.to_string(),
                |to| format!("cannot use the database at {}: check the DSN", address(&to)),
            )
        }),
    }
}

/// Refuses a database whose schema is older than this program; a newer one is fine (expand, then contract).
///
/// # Errors
/// One sentence that says what to do.
pub async fn check_migrated(pool: &PgPool) -> anyhow::Result<()> {
    let applied: Vec<i64> = sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success")
        .fetch_all(pool)
        .await
        .or_else(|error| match error.as_database_error().and_then(sqlx::error::DatabaseError::code) {
            Some(code) if code == "42P01" => Ok(Vec::new()), // undefined table: never migrated
            _ => Err(error),
        })
        .context("cannot read the version of the database's schema")?;
    match MIGRATOR.iter().find(|migration| !applied.contains(&migration.version)) {
        None => Ok(()),
        Some(missing) => {
            bail!("the database lacks migration {} ({}): run `app migrate`", missing.version, missing.description)
        }
    }
}

/// A pool that connects when it is first used.
///
/// # Errors
/// A DSN that cannot be read; the DSN itself is never repeated, it holds a password.
pub fn pool(options: &Options) -> anyhow::Result<PgPool> {
    Ok(PgPoolOptions::new()
        .max_connections(options.max_connections)
        .acquire_timeout(options.acquire_timeout)
        .after_release(|connection, _| {
            Box::pin(async move {
                begin::rollback_leftovers(connection).await?;
                Ok(true)
            })
        })
        .connect_lazy_with(connect_options(options)?))
}

/// Has connections that are opened from now on log in like this; those that are open stay.
///
/// # Errors
/// A DSN that cannot be read.
pub fn log_in_anew(pool: &PgPool, options: &Options) -> anyhow::Result<()> {
    pool.set_connect_options(connect_options(options)?);
    Ok(())
}

fn connect_options(options: &Options) -> anyhow::Result<PgConnectOptions> {
    let Ok(parsed) = options.dsn.parse::<PgConnectOptions>() else {
        bail!("the database DSN cannot be read: write postgres://user:password@host:5432/database");
    };
    Ok(tls::verified(parsed, &options.dsn).application_name(options.application_name).options([
        // A publisher that died in a transaction frees its rows after this, not after two hours of keepalive.
        ("idle_in_transaction_session_timeout", "10s"),
        ("lock_timeout", "5s"),
        ("statement_timeout", "15s"),
        ("client_connection_check_interval", "5s"),
        ("tcp_keepalives_idle", "30"),
        ("tcp_keepalives_interval", "10"),
        ("tcp_keepalives_count", "3"),
        ("timezone", "UTC"),
    ]))
}

fn address(options: &PgConnectOptions) -> String {
    format!("{}:{}", options.get_host(), options.get_port())
}
