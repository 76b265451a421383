//! The configuration of the app: flags and environment variables, parsed once at start.

mod mail;
mod oidc;
mod secrets;

use std::net::{AddrParseError, IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use access::gate;
use access::limits::TeamLimits;
use anyhow::Context as _;
use chrono::TimeDelta;
use clap::Args;
use db::Pooler;
use db_login::Place;
use egress::allowed::{Allowed, Names};
use egress::ports::{PortRange, Ports};
use egress::resolver::Resolver;
use executor::recovery;
use ipnet::IpNet;
use ledger::identity::DEFAULT_ENVIRONMENT;
use ledger::requested_fires::DefaultRate;
use ledger::runs::Capacity;
use schedule::{Environment, Timezone};

use crate::cadence::When;
use crate::jobs::prune;

pub use mail::MailSettings;
pub use oidc::Oidc;
pub use secrets::SecretsKeys;

/// Settings of `cronbox-app serve`.
#[derive(Args, Clone)]
pub struct Config {
    /// Postgres DSN: `postgres://user:password@host:5432/database`
    #[arg(long, help_heading = "Database", env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// A file with user name and password (RDS's JSON) or a DSN; `DATABASE_URL` then says only where the database is.
    #[arg(long, help_heading = "Database", env = "CRONBOX_DB_LOGIN_FILE", value_name = "FILE")]
    pub db_login_file: Option<PathBuf>,
    /// A PEM file of certificate authorities for the database's certificate, in addition to the public ones.
    #[arg(long, help_heading = "Database", env = "CRONBOX_DB_CA_FILE", value_parser = db::ca_file)]
    pub db_ca_file: Option<PathBuf>,
    /// Where to listen.
    #[arg(long, help_heading = "HTTP", env = "CRONBOX_BIND_ADDR", default_value = "127.0.0.1:8080")]
    pub bind_addr: SocketAddr,
    /// Where to serve `/metrics`, `/docs` and `/openapi.json`, which `CRONBOX_BIND_ADDR` then does not serve, and the probes too.
    #[arg(long, help_heading = "HTTP", env = "CRONBOX_ADMIN_ADDR")]
    pub admin_addr: Option<SocketAddr>,
    /// Whether to write the metrics to stdout once a minute, in CloudWatch's embedded metric format.
    #[arg(long, help_heading = "General", env = "CRONBOX_METRICS_EMF", default_value_t = false, action = clap::ArgAction::Set)]
    pub metrics_emf: bool,
    /// A URL that one instance gets once a minute while the service is healthy: a check that alerts when the pings stop. Set
    /// it for all instances
    #[arg(long, help_heading = "General", env = "CRONBOX_HEARTBEAT_URL", hide_env_values = true, value_name = "URL")]
    pub heartbeat_url: Option<String>,
    /// Whether that URL may begin with http on another machine.
    #[arg(long, help_heading = "General", env = "CRONBOX_HEARTBEAT_ALLOW_HTTP", default_value_t = false, action = clap::ArgAction::Set)]
    pub heartbeat_allow_http: bool,
    /// The environment, as in the schedule names: `wf-<id>-<env>`
    #[arg(long, help_heading = "General", env = "CRONBOX_ENV", default_value = DEFAULT_ENVIRONMENT)]
    pub env: Environment,
    /// A YAML file of workflows, loaded before the app listens.
    #[arg(long, help_heading = "General", env = "CRONBOX_SCHEDULES_FILE", value_name = "FILE")]
    pub schedules: Option<PathBuf>,
    /// What `DATABASE_URL` leads to: Postgres itself (none), or a pooler that works by sessions or by transactions.
    #[arg(
        long,
        help_heading = "Database",
        env = "CRONBOX_POOLER",
        default_value = "none",
        value_name = "none|session|transaction"
    )]
    pub pooler: Pooler,
    /// Database connections at most, of all pools together; at least 8.
    #[arg(long, help_heading = "Database", env = "CRONBOX_DB_MAX_CONNECTIONS", default_value_t = 40, value_parser = clap::value_parser!(u32).range(8..))]
    pub db_max_connections: u32,
    /// How long an edit waits for a lock in the database, in milliseconds.
    #[arg(long, help_heading = "Database", env = "CRONBOX_EDIT_LOCK_TIMEOUT_MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub edit_lock_timeout_ms: u64,
    /// Private networks that http actions may reach, for example 10.1.0.0/16,127.0.0.0/8
    #[arg(long, help_heading = "What actions may reach", env = "CRONBOX_ACTION_ALLOW_CIDRS", value_delimiter = ',')]
    pub action_allow_cidrs: Vec<IpNet>,
    /// The keys that encrypt secrets.
    #[command(flatten)]
    pub secrets: SecretsKeys,
    /// Name servers for the names in URLs of actions, for example 10.0.0.2,10.0.0.3:5353; none = those of /etc/resolv.conf
    #[arg(long, help_heading = "What actions may reach", env = "CRONBOX_EGRESS_NAMESERVERS", value_delimiter = ',', value_parser = parse_name_server)]
    pub egress_nameservers: Vec<SocketAddr>,
    /// Whether the URL of an action may begin with http and lead to other networks than these private ones.
    #[arg(long, help_heading = "What actions may reach", env = "CRONBOX_EGRESS_ALLOW_HTTP", default_value_t = false, action = clap::ArgAction::Set)]
    pub egress_allow_http: bool,
    /// Ports that http actions may reach, for example 443,8000-8999; none = all except those of other protocols
    #[arg(long, help_heading = "What actions may reach", env = "CRONBOX_EGRESS_PORTS", value_delimiter = ',')]
    pub egress_ports: Vec<PortRange>,
    /// Runs that this instance executes at once.
    #[arg(long, help_heading = "Execution", env = "CRONBOX_EXECUTOR_SLOTS", default_value_t = 1_000)]
    pub executor_slots: usize,
    /// Mebibytes that the actions and inputs of these runs may take at once; further runs wait.
    #[arg(long, help_heading = "Execution", env = "CRONBOX_EXECUTOR_MEBIBYTES", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub executor_mebibytes: u32,
    /// Per cent of these slots and of this memory that the runs of one team may use at once, so that no team blocks another.
    #[arg(long, help_heading = "Execution", env = "CRONBOX_EXECUTOR_TEAM_PERCENT", default_value_t = 75, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub executor_team_percent: u8,
    /// How often the executor checks for runs without a notification, in milliseconds.
    #[arg(long, help_heading = "Execution", env = "CRONBOX_EXECUTOR_POLL_MS", default_value_t = 1_000)]
    pub executor_poll_ms: u64,
    /// How long running actions may take to end at shutdown, in seconds; then their runs are handed over.
    #[arg(long, help_heading = "Execution", env = "CRONBOX_SHUTDOWN_DRAIN_SECS", default_value_t = 110)]
    pub shutdown_drain_secs: u64,
    /// How often this instance renews the leases of the runs that it executes, in milliseconds.
    #[arg(long, help_heading = "Execution", env = "CRONBOX_HEARTBEAT_MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub heartbeat_ms: u64,
    /// How long a lease of a run lasts without a renewal, in seconds; then the run is lost. At least six heartbeats
    #[arg(long, help_heading = "Execution", env = "CRONBOX_LOST_AFTER_SECS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    pub lost_after_secs: u64,
    /// How often a lost run is continued before it is abandoned.
    #[arg(long, help_heading = "Execution", env = "CRONBOX_RECOVERY_MAX_ATTEMPTS", default_value_t = 3)]
    pub recovery_max_attempts: u32,
    /// Lost or handed-over runs that were accepted longer ago than these seconds are abandoned.
    #[arg(long, help_heading = "Execution", env = "CRONBOX_RECOVERY_MAX_AGE_SECS", default_value_t = 24 * 60 * 60)]
    pub recovery_max_age_secs: u32,
    /// The database is a storage snapshot that was restored: jobs and publisher wait for `cronbox-app ledger accept`.
    #[arg(long, help_heading = "General", env = "CRONBOX_RESTORED", default_value_t = false, action = clap::ArgAction::Set)]
    pub restored: bool,
    /// Whether this instance takes part in the background jobs.
    #[arg(long, help_heading = "Background jobs", env = "CRONBOX_JOBS_ENABLED", default_value_t = true, action = clap::ArgAction::Set)]
    pub jobs_enabled: bool,
    /// The timezone of the jobs' crons.
    #[arg(long, help_heading = "Background jobs", env = "CRONBOX_JOBS_TIMEZONE", default_value = "UTC", value_parser = schedule::parse_timezone)]
    pub jobs_timezone: Timezone,
    /// When to check for missed times: seconds as `60s`, or a cron.
    #[arg(long, help_heading = "Background jobs", env = "CRONBOX_JOB_WATCHDOG", default_value = "60s")]
    pub job_watchdog: When,
    /// When to check for runs that wait although a slot is free, or that have waited too long.
    #[arg(long, help_heading = "Background jobs", env = "CRONBOX_JOB_QUEUE", default_value = "10s")]
    pub job_queue: When,
    /// When to advance backfills and bulk operations.
    #[arg(long, help_heading = "Background jobs", env = "CRONBOX_JOB_BACKFILLS", default_value = "5s")]
    pub job_backfills: When,
    /// How often to check for runs whose instance was lost, in seconds.
    #[arg(long, help_heading = "Execution", env = "CRONBOX_RECOVERY_INTERVAL_SECS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub recovery_interval_secs: u64,
    /// When to check for runs that did not end at their timeout.
    #[arg(long, help_heading = "Background jobs", env = "CRONBOX_JOB_TIMEOUTS", default_value = "30s")]
    pub job_timeouts: When,
    /// When to add up the statistics of past minutes.
    #[arg(long, help_heading = "Background jobs", env = "CRONBOX_JOB_STATISTICS", default_value = "60s")]
    pub job_statistics: When,
    /// When to extend the hash chain of the audit log, up to which it is exported.
    #[arg(long, help_heading = "Background jobs", env = "CRONBOX_JOB_AUDIT", default_value = "10s")]
    pub job_audit: When,
    /// When to collect notifications in messages, and to deliver them.
    #[arg(long, help_heading = "Background jobs", env = "CRONBOX_JOB_NOTIFICATIONS", default_value = "5s")]
    pub job_notifications: When,
    /// When to look for conditions that last too long: late runs, long pauses, workflows without success.
    #[arg(long, help_heading = "Background jobs", env = "CRONBOX_JOB_CONDITIONS", default_value = "60s")]
    pub job_conditions: When,
    /// When to verify the days that have ended, if they are not verified yet.
    #[arg(long, help_heading = "Background jobs", env = "CRONBOX_JOB_VERIFY", default_value = "600s")]
    pub job_verify: When,
    /// When to remove old rows.
    #[arg(long, help_heading = "Background jobs", env = "CRONBOX_JOB_PRUNE", default_value = "0 3 * * *")]
    pub job_prune: When,
    /// Days for which published outbox rows are kept.
    #[arg(long, help_heading = "Background jobs", env = "CRONBOX_OUTBOX_KEEP_DAYS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub outbox_keep_days: u32,
    /// Days for which failed outbox rows are kept.
    #[arg(long, help_heading = "Background jobs", env = "CRONBOX_OUTBOX_KEEP_FAILED_DAYS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..))]
    pub outbox_keep_failed_days: u32,
    /// Days for which runs and occurrences are kept; occurrences never less than 15.
    #[arg(long, help_heading = "Background jobs", env = "CRONBOX_RETENTION_DAYS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..))]
    pub retention_days: u32,
    /// Days for which entries of the audit log are kept, at least 30. 0 = forever
    #[arg(long, help_heading = "Background jobs", env = "CRONBOX_AUDIT_KEEP_DAYS", default_value_t = 400)]
    pub audit_keep_days: u32,
    /// Exits or stops at a named point, for example `I5:1:kill`. Not in a release.
    #[cfg(debug_assertions)]
    #[arg(long, env = "CRONBOX_FAULT", hide = true)]
    pub fault: Option<db::failpoint::Fault>,
    /// By how many seconds this instance's own clock is wrong. Not in a release.
    #[cfg(debug_assertions)]
    #[arg(long, env = "CRONBOX_CLOCK_OFFSET_SECS", hide = true, default_value_t = 0, allow_negative_numbers = true)]
    pub clock_offset_secs: i64,
    /// How long a client may take to send its headers, in milliseconds; so also how long a connection may be idle.
    #[arg(long, help_heading = "HTTP", env = "CRONBOX_HEADER_TIMEOUT_MS", default_value_t = 10_000)]
    pub header_timeout_ms: u64,
    /// How long a client may read nothing of an answer, in milliseconds; then its connection ends.
    #[arg(long, help_heading = "HTTP", env = "CRONBOX_WRITE_TIMEOUT_MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub write_timeout_ms: u64,
    /// How long a request may take, in milliseconds.
    #[arg(long, help_heading = "HTTP", env = "CRONBOX_REQUEST_TIMEOUT_MS", default_value_t = 30_000)]
    pub request_timeout_ms: u64,
    /// Connections served at once; another one takes the place of one without an active key, or waits.
    #[arg(long, help_heading = "Limits", env = "CRONBOX_MAX_CONNECTIONS", default_value_t = 8_192)]
    pub max_connections: usize,
    /// Connections of one address at once; of this machine and of trusted proxies as many as there are. 0 = no limit
    #[arg(long, help_heading = "Limits", env = "CRONBOX_ADDRESS_CONNECTIONS", default_value_t = 2_048)]
    pub address_connections: usize,
    /// Networks of proxies whose `X-Forwarded-For` names the client, for example 10.1.0.0/16,192.0.2.7/32
    #[arg(long, help_heading = "HTTP", env = "CRONBOX_TRUSTED_PROXIES", value_delimiter = ',')]
    pub trusted_proxies: Vec<IpNet>,
    /// How many of these proxies each request passes: the client is this entry of `X-Forwarded-For`, from the right; none =
    /// the rightmost entry outside of these networks
    #[arg(long, help_heading = "HTTP", env = "CRONBOX_TRUSTED_HOPS", requires = "trusted_proxies", value_parser = clap::value_parser!(u8).range(1..))]
    pub trusted_hops: Option<u8>,
    /// Requests of one address in progress on this instance, without fires. 0 = no limit
    #[arg(long, help_heading = "Limits", env = "CRONBOX_ADDRESS_REQUESTS_IN_FLIGHT", default_value_t = 512, value_parser = clap::value_parser!(i64).range(0..))]
    pub address_requests_in_flight: i64,
    /// Requests in progress on this instance, without fires. 0 = no limit
    #[arg(long, help_heading = "Limits", env = "CRONBOX_REQUESTS_IN_FLIGHT", default_value_t = 2_048, value_parser = clap::value_parser!(i64).range(0..))]
    pub requests_in_flight: i64,
    /// Requests a second for one admin or team key; scheduler keys are never limited. 0 = no limit
    #[arg(long, help_heading = "Limits", env = "CRONBOX_KEY_REQUESTS_PER_SEC", default_value_t = 500)]
    pub key_requests_per_sec: u32,
    /// Unknown or revoked keys a minute that one address may try. 0 = no limit
    #[arg(long, help_heading = "Limits", env = "CRONBOX_BAD_KEYS_PER_MIN", default_value_t = 60)]
    pub bad_keys_per_min: u32,
    /// Requests of one admin or team key in progress on this instance. 0 = no limit
    #[arg(long, help_heading = "Limits", env = "CRONBOX_KEY_REQUESTS_IN_FLIGHT", default_value_t = 128, value_parser = clap::value_parser!(i64).range(0..))]
    pub key_requests_in_flight: i64,
    /// Requests of one team in progress on this instance, unless an admin has set its limit. 0 = no limit
    #[arg(long, help_heading = "Limits", env = "CRONBOX_TEAM_REQUESTS_IN_FLIGHT", default_value_t = 256, value_parser = clap::value_parser!(i64).range(0..))]
    pub team_requests_in_flight: i64,
    /// Edits of one team in progress on this instance, unless an admin has set its limit. 0 = no limit
    #[arg(long, help_heading = "Limits", env = "CRONBOX_TEAM_EDITS_IN_FLIGHT", default_value_t = 64, value_parser = clap::value_parser!(i64).range(0..))]
    pub team_edits_in_flight: i64,
    /// Lists and statistics of one team in progress on this instance, unless an admin has set its limit. 0 = no limit
    #[arg(long, help_heading = "Limits", env = "CRONBOX_TEAM_LISTS_IN_FLIGHT", default_value_t = 16, value_parser = clap::value_parser!(i64).range(0..))]
    pub team_lists_in_flight: i64,
    /// Runs of one team that all instances together execute at once, unless an admin has set its limit. 0 = no limit but
    /// its share of each instance
    #[arg(long, help_heading = "Limits", env = "CRONBOX_TEAM_RUNNING_RUNS", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    pub team_running_runs: i64,
    /// Workflows of one team that are not archived, unless an admin has set its limit. 0 = no limit
    #[arg(long, help_heading = "Limits", env = "CRONBOX_TEAM_WORKFLOWS", default_value_t = 10_000, value_parser = clap::value_parser!(i64).range(0..))]
    pub team_workflows: i64,
    /// Fires a minute of the workflows of one team, and as many runs that its callers request, unless an admin has set its
    /// limit. 0 = no limit
    #[arg(long, help_heading = "Limits", env = "CRONBOX_TEAM_FIRES_PER_MINUTE", default_value_t = 1_000, value_parser = clap::value_parser!(i64).range(0..))]
    pub team_fires_per_minute: i64,
    /// Bytes of inputs and actions of the workflows of one team, unless an admin has set its limit. 0 = no limit
    #[arg(long, help_heading = "Limits", env = "CRONBOX_TEAM_INPUT_BYTES", default_value_t = 268_435_456, value_parser = clap::value_parser!(i64).range(0..))]
    pub team_input_bytes: i64,
    /// Archived workflows of one team from which on it creates no workflow, unless an admin has set its limit. 0 = no limit
    #[arg(long, help_heading = "Limits", env = "CRONBOX_TEAM_ARCHIVED_WORKFLOWS", default_value_t = 100_000, value_parser = clap::value_parser!(i64).range(0..))]
    pub team_archived_workflows: i64,
    /// Bytes of inputs and actions of the archived workflows of one team from which on it creates no workflow, unless an admin
    /// has set its limit. 0 = no limit
    #[arg(long, help_heading = "Limits", env = "CRONBOX_TEAM_ARCHIVED_BYTES", default_value_t = 1_073_741_824, value_parser = clap::value_parser!(i64).range(0..))]
    pub team_archived_bytes: i64,
    /// The provider with which people sign in.
    #[command(flatten)]
    pub oidc: Oidc,
    /// How notifications are sent.
    #[command(flatten)]
    pub mail: MailSettings,
}

/// Parses an address with or without a port.
fn parse_name_server(text: &str) -> Result<SocketAddr, AddrParseError> {
    text.parse::<IpAddr>().map(|address| (address, 53).into()).or_else(|_| text.parse())
}

impl Config {
    /// Whether this peer has as many connections as it opens: it is of this machine, or of a proxy.
    #[must_use]
    pub fn is_trusted_peer(&self, peer: IpAddr) -> bool {
        peer.is_loopback() || self.trusted_proxies.iter().any(|network| network.contains(&peer))
    }

    /// Whether this client has as many requests in progress as it sends: it is of this machine, or of a proxy. Proxies that
    /// are counted name each client, so then an address of their networks is a client's.
    #[must_use]
    pub fn is_trusted_client(&self, client: IpAddr) -> bool {
        client.is_loopback() || self.trusted_hops.is_none() && self.is_trusted_peer(client)
    }

    /// Which addresses requests that leave the service may reach.
    pub(crate) fn allowed(&self) -> Allowed {
        let resolver = Resolver::new(self.egress_nameservers.clone());
        Allowed::new(self.action_allow_cidrs.clone())
            .with_names(Names::Resolver(resolver))
            .with_http(self.egress_allow_http)
            .with_ports(Ports::new(self.egress_ports.clone()))
    }

    /// Slots that the runs of one team may use at once: at least one.
    #[must_use]
    pub fn slots_of_a_team(&self) -> usize {
        (self.executor_slots * usize::from(self.executor_team_percent) / 100).max(1)
    }

    /// What the executor of this instance has for its runs.
    pub(crate) fn executor_capacity(&self) -> Capacity {
        Capacity {
            slots: self.executor_slots,
            slots_of_a_team: self.slots_of_a_team(),
            bytes: usize::try_from(self.executor_mebibytes).unwrap_or(usize::MAX) << 20,
        }
    }

    /// The settings of the executor of this instance.
    pub(crate) fn executor_settings(&self) -> executor::Settings {
        executor::Settings {
            capacity: self.executor_capacity(),
            running_of_a_team: self.team_running_runs,
            requested_fires: self.requested_fires(),
            poll: Duration::from_millis(self.executor_poll_ms),
            drain: Duration::from_secs(self.shutdown_drain_secs),
            heartbeat: Duration::from_millis(self.heartbeat_ms),
            lost_after_secs: self.lost_after_secs,
            max_age_secs: self.recovery_max_age_secs,
        }
    }

    /// How long occurrences are kept, at least 15 days, because dead-letter queues keep a fire for 14 days.
    #[must_use]
    pub fn ledger_kept(&self) -> TimeDelta {
        TimeDelta::days(self.retention_days.max(15).into())
    }

    /// When a lost run is abandoned instead of continued.
    pub(crate) fn recovery_settings(&self) -> recovery::Settings {
        recovery::Settings { max_attempts: self.recovery_max_attempts, max_age_secs: self.recovery_max_age_secs }
    }

    /// For how long rows are kept.
    pub(crate) fn prune_settings(&self) -> prune::Settings {
        prune::Settings {
            outbox_days: self.outbox_keep_days,
            outbox_failed_days: self.outbox_keep_failed_days,
            retention_days: self.retention_days,
            audit_days: self.audit_keep_days,
        }
    }

    /// The limits of keys, addresses and teams.
    pub(crate) fn gate_limits(&self) -> gate::Limits {
        gate::Limits {
            key_requests_per_sec: self.key_requests_per_sec,
            bad_keys_per_min: self.bad_keys_per_min,
            key_requests_in_flight: self.key_requests_in_flight,
            address_requests_in_flight: self.address_requests_in_flight,
            requests_in_flight: self.requests_in_flight,
            team: self.team_limits(),
        }
    }

    /// The limits of a team for which no admin has set others.
    #[must_use]
    pub fn team_limits(&self) -> TeamLimits {
        TeamLimits {
            running_runs: Some(self.team_running_runs),
            workflows: Some(self.team_workflows),
            fires_per_minute: Some(self.team_fires_per_minute),
            input_bytes: Some(self.team_input_bytes),
            archived_workflows: Some(self.team_archived_workflows),
            archived_bytes: Some(self.team_archived_bytes),
            requests_in_flight: Some(self.team_requests_in_flight),
            edits_in_flight: Some(self.team_edits_in_flight),
            lists_in_flight: Some(self.team_lists_in_flight),
        }
    }

    /// The runs a minute that callers of a team may start, if no admin has set its limit.
    pub(crate) fn requested_fires(&self) -> DefaultRate {
        DefaultRate(self.team_fires_per_minute)
    }

    /// Returns the DSN of the database, as the file with the login says now.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has no login, or if the DSN names no host for a login that names none.
    pub fn read_dsn(&self) -> anyhow::Result<String> {
        let Some(file) = &self.db_login_file else { return Ok(self.database_url.clone()) };
        let place = Place::of_dsn(&self.database_url);
        let place = place.context("DATABASE_URL names no host: write postgres://host:5432/database")?;
        let login = std::fs::read_to_string(file);
        let login = login.with_context(|| format!("cannot read {}: check CRONBOX_DB_LOGIN_FILE", file.display()))?;
        place.make_dsn(&login).with_context(|| format!("{} cannot be used", file.display()))
    }

    /// The options of a connection with this DSN.
    #[must_use]
    pub fn database_options(&self, dsn: &str) -> db::Options {
        let dsn = db::with_ca(dsn, self.db_ca_file.as_deref());
        db::Options { pooler: self.pooler, ..database_options(&dsn, self.db_max_connections) }
    }
}

/// The options of one command that needs few connections, or of the server that needs many, without a pooler.
#[must_use]
pub fn database_options(dsn: &str, max_connections: u32) -> db::Options {
    db::Options {
        dsn: dsn.to_owned(),
        pooler: Pooler::None,
        direct_dsn: None,
        max_connections,
        // Longer than a restart of Postgres behind a proxy, shorter than the runner's 8 s.
        acquire_timeout: Duration::from_secs(5),
        application_name: "cronbox-app",
    }
}

/// The value of a variable that a schedules file names, `${env:NAME}`.
#[expect(clippy::disallowed_methods, reason = "clap would make it a flag, and the file names it")]
pub(crate) fn environment_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
