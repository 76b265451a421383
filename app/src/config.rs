//! What the app is told at start: flags and environment, parsed once.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use chrono::TimeDelta;
use clap::Args;
use ipnet::IpNet;
use schedule::Environment;

/// A fire older than this is not run any more (until the ledger lets each workflow choose).
pub const CATCH_UP_WINDOW: TimeDelta = TimeDelta::hours(24);
/// How long runs and occurrences are kept.
pub const RETENTION: TimeDelta = TimeDelta::days(90);
/// How long one action may take (until the ledger lets each workflow choose).
pub const ACTION_TIMEOUT: Duration = Duration::from_secs(300);
/// A fire further in the future than this means that somebody's clock is wrong.
pub const CLOCK_SKEW: TimeDelta = TimeDelta::minutes(5);
/// Largest request body: room for the largest action, no room for an attack.
pub const BODY_LIMIT: usize = 256 * 1024;

/// Settings of `app serve`.
#[derive(Args, Clone)]
pub struct Config {
    /// Postgres DSN: `postgres://user:password@host:5432/database`
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// A PEM file of the certificates that the database's may be signed with, beside the public ones.
    #[arg(long, env = "DB_CA_FILE", value_parser = db::ca_file)]
    pub db_ca_file: Option<PathBuf>,
    /// Where to listen.
    #[arg(long, env = "BIND_ADDR", default_value = "127.0.0.1:8080")]
    pub bind_addr: SocketAddr,
    /// The environment, as in the schedule names: wf-<id>-<env>
    #[arg(long, env = "ENV", default_value = "dev")]
    pub env: Environment,
    /// Database connections at most.
    #[arg(long, env = "DB_MAX_CONNECTIONS", default_value_t = 32)]
    pub db_max_connections: u32,
    /// Private networks that http actions may reach all the same, e.g. 10.1.0.0/16,127.0.0.0/8
    #[arg(long, env = "ACTION_ALLOW_CIDRS", value_delimiter = ',')]
    pub action_allow_cidrs: Vec<IpNet>,
    /// Runs that this instance executes at once.
    #[arg(long, env = "EXECUTOR_SLOTS", default_value_t = 64)]
    pub executor_slots: usize,
    /// How often the executor looks for runs that nobody told it of, in milliseconds.
    #[arg(long, env = "EXECUTOR_POLL_MS", default_value_t = 1_000)]
    pub executor_poll_ms: u64,
    /// How long running actions may take to end at shutdown, in seconds.
    #[arg(long, env = "SHUTDOWN_DRAIN_SECS", default_value_t = 5)]
    pub shutdown_drain_secs: u64,
    /// How long a client may take to send its headers, in milliseconds.
    #[arg(long, env = "HEADER_TIMEOUT_MS", default_value_t = 10_000)]
    pub header_timeout_ms: u64,
    /// How long a request may take, in milliseconds.
    #[arg(long, env = "REQUEST_TIMEOUT_MS", default_value_t = 30_000)]
    pub request_timeout_ms: u64,
    /// Connections served at once; more wait to be accepted.
    #[arg(long, env = "MAX_CONNECTIONS", default_value_t = 8_192)]
    pub max_connections: usize,
    /// Requests a second for one admin or team key; scheduler keys are never limited. 0 = no limit
    #[arg(long, env = "KEY_REQUESTS_PER_SEC", default_value_t = 500)]
    pub key_requests_per_sec: u32,
    /// Unknown or revoked keys a minute that one address may try. 0 = no limit
    #[arg(long, env = "BAD_KEYS_PER_MIN", default_value_t = 60)]
    pub bad_keys_per_min: u32,
}

impl Config {
    /// How the app reaches its database.
    #[must_use]
    pub fn database(&self) -> db::Options {
        database(&db::with_ca(&self.database_url, self.db_ca_file.as_deref()), self.db_max_connections)
    }
}

/// The options of one command that needs few connections, or of the server that needs many.
#[must_use]
pub fn database(dsn: &str, max_connections: u32) -> db::Options {
    db::Options {
        dsn: dsn.to_owned(),
        max_connections,
        // Long enough for a restart of Postgres behind a proxy, short enough for the runner's 8 s.
        acquire_timeout: Duration::from_secs(5),
        application_name: "cronbox-app",
    }
}
