//! How to reach the database, and the settings of each connection.

use std::time::Duration;

use anyhow::bail;
use sqlx::postgres::PgConnectOptions;

use crate::tls;

/// How to reach the database.
#[derive(Clone)]
pub struct Options {
    /// `postgres://user:password@host:port/database`; without `sslmode`, TLS is verified unless the host is local
    pub dsn: String,
    /// The maximum number of connections.
    pub max_connections: u32,
    /// How long a caller waits for a connection before it gets an error.
    pub acquire_timeout: Duration,
    /// The name in `pg_stat_activity`.
    pub application_name: &'static str,
}

/// The options of a connection for requests and jobs.
pub(crate) fn connect_options(options: &Options) -> anyhow::Result<PgConnectOptions> {
    Ok(login(options)?.options([
        // If a publisher crashes in a transaction, its rows are unlocked after this, not after two hours of keepalive.
        ("idle_in_transaction_session_timeout", "10s"),
        ("lock_timeout", "5s"),
        ("statement_timeout", "15s"),
    ]))
}

/// The options of the connection that migrates: an index on many rows takes time, but a lock must not wait.
pub(crate) fn migration_options(options: &Options) -> anyhow::Result<PgConnectOptions> {
    Ok(login(options)?.options([
        ("idle_in_transaction_session_timeout", "60s"),
        ("lock_timeout", "5s"),
        ("statement_timeout", "0"),
    ]))
}

pub(crate) fn server_address(options: &PgConnectOptions) -> String {
    format!("{}:{}", options.get_host(), options.get_port())
}

fn login(options: &Options) -> anyhow::Result<PgConnectOptions> {
    let Ok(parsed) = options.dsn.parse::<PgConnectOptions>() else {
        bail!("the database DSN cannot be read: write postgres://user:password@host:5432/database");
    };
    Ok(tls::with_verification(parsed, &options.dsn).application_name(options.application_name).options([
        // Claims, fences and decisions lock a row and then read what the previous owner of the lock committed.
        ("default_transaction_isolation", "read committed"),
        // On the server: releases the locks of a client that has disappeared.
        ("client_connection_check_interval", "5s"),
        ("tcp_keepalives_idle", "15"),
        ("tcp_keepalives_interval", "5"),
        ("tcp_keepalives_count", "3"),
        ("tcp_user_timeout", "20s"),
        ("timezone", "UTC"),
    ]))
}
