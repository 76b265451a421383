//! How to reach the database, and what each connection asks of it.

use std::time::Duration;

use anyhow::bail;
use sqlx::postgres::PgConnectOptions;

use crate::tls;

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

/// Of a connection that serves requests and jobs.
pub(crate) fn connect_options(options: &Options) -> anyhow::Result<PgConnectOptions> {
    Ok(login(options)?.options([
        // A publisher that died in a transaction frees its rows after this, not after two hours of keepalive.
        ("idle_in_transaction_session_timeout", "10s"),
        ("lock_timeout", "5s"),
        ("statement_timeout", "15s"),
    ]))
}

/// Of the connection that migrates: an index of many rows takes its time, a lock does not wait.
pub(crate) fn migration_options(options: &Options) -> anyhow::Result<PgConnectOptions> {
    Ok(login(options)?.options([
        ("idle_in_transaction_session_timeout", "60s"),
        ("lock_timeout", "5s"),
        ("statement_timeout", "0"),
    ]))
}

pub(crate) fn address(options: &PgConnectOptions) -> String {
    format!("{}:{}", options.get_host(), options.get_port())
}

fn login(options: &Options) -> anyhow::Result<PgConnectOptions> {
    let Ok(parsed) = options.dsn.parse::<PgConnectOptions>() else {
        bail!("the database DSN cannot be read: write postgres://user:password@host:5432/database");
    };
    Ok(tls::verified(parsed, &options.dsn).application_name(options.application_name).options([
        // Claims, fences and decisions lock a row and then read what the last holder committed.
        ("default_transaction_isolation", "read committed"),
        // The server's side: it frees what a client that vanished holds.
        ("client_connection_check_interval", "5s"),
        ("tcp_keepalives_idle", "15"),
        ("tcp_keepalives_interval", "5"),
        ("tcp_keepalives_count", "3"),
        ("tcp_user_timeout", "20s"),
        ("timezone", "UTC"),
    ]))
}
