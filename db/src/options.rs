//! How to reach the database, and the settings of each connection.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use sqlx::postgres::PgConnectOptions;
use url::Url;

use crate::tls;

/// How to reach the database.
#[derive(Clone)]
pub struct Options {
    /// `postgres://user:password@host:port/database`; without `sslmode`, TLS is verified unless the host is local
    pub dsn: String,
    /// What the DSN leads to.
    pub pooler: Pooler,
    /// A DSN that leads past the pooler, for `LISTEN` and migrations; without a user it has the login of `dsn`.
    pub direct_dsn: Option<String>,
    /// The maximum number of connections.
    pub max_connections: u32,
    /// How long a caller waits for a connection before it gets an error.
    pub acquire_timeout: Duration,
    /// The name in `pg_stat_activity`.
    pub application_name: &'static str,
}

impl Options {
    /// Whether the DSNs of both name the same host, port and database; the logins may differ. They do not if one cannot
    /// be read.
    #[must_use]
    pub fn is_same_database(&self, other: &Options) -> bool {
        let place = database_place(&self.dsn);
        place.is_some() && place == database_place(&other.dsn)
    }
}

/// What is between this process and Postgres.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooler {
    /// Nothing
    #[default]
    None,
    /// A pooler that gives a session of the server to each connection
    Session,
    /// A pooler that gives a session of the server to each transaction
    Transaction,
}

impl FromStr for Pooler {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "none" => Ok(Pooler::None),
            "session" => Ok(Pooler::Session),
            "transaction" => Ok(Pooler::Transaction),
            _ => Err("write none, session or transaction".to_owned()),
        }
    }
}

/// The timeouts of a session of the app or the publisher.
pub(crate) const TIMEOUTS: [(&str, &str); 3] = [
    // If a publisher crashes in a transaction, its rows are unlocked after this, not after two hours of keepalive.
    ("idle_in_transaction_session_timeout", "10s"),
    ("lock_timeout", "5s"),
    ("statement_timeout", "15s"),
];

/// The same, as durations, of locks and statements: a transaction that wants no others sets none.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(15);

/// The settings of a session behind a pooler, which refuses them in the startup packet.
pub(crate) const SESSION_SETTINGS: &str = "
    -- session settings
    SET idle_in_transaction_session_timeout = '10s';
    SET lock_timeout = '5s';
    SET statement_timeout = '15s';
    SET default_transaction_isolation = 'read committed';
    SET jit = off;
    SET client_connection_check_interval = '5s'";

/// Begins a transaction whose session may be another one than that of the last transaction, and proves that it can
/// write: in recovery a transaction is read-only, too. `SHOW` takes no snapshot, so the caller may still choose its level.
pub(crate) const BEGIN_ANYWHERE: &str = "
    -- begin anywhere
    BEGIN ISOLATION LEVEL READ COMMITTED;
    SET LOCAL idle_in_transaction_session_timeout = '10s';
    SET LOCAL lock_timeout = '5s';
    SET LOCAL statement_timeout = '15s';
    SET LOCAL jit = off;
    SET LOCAL client_connection_check_interval = '5s';
    SHOW transaction_read_only";

/// The options of a connection for requests and jobs.
pub(crate) fn connect_options(options: &Options) -> anyhow::Result<PgConnectOptions> {
    let login = parse_login(&options.dsn, options.application_name)?;
    Ok(match options.pooler {
        Pooler::None => with_session(login).options(TIMEOUTS),
        Pooler::Session | Pooler::Transaction => without_startup_options(login),
    })
}

/// The options of a connection past the pooler; `None` = no DSN leads past it.
pub(crate) fn direct_options(options: &Options) -> anyhow::Result<Option<PgConnectOptions>> {
    let Some(direct) = &options.direct_dsn else { return Ok(None) };
    let login = parse_login(&with_login_of(direct, &options.dsn), options.application_name)?;
    Ok(Some(with_session(login).options(TIMEOUTS)))
}

/// The options of the connection that migrates: an index on many rows takes time, but a lock must not wait.
pub(crate) fn migration_options(options: &Options) -> anyhow::Result<PgConnectOptions> {
    let direct = options.direct_dsn.as_ref().map(|direct| with_login_of(direct, &options.dsn));
    let login = parse_login(direct.as_ref().unwrap_or(&options.dsn), options.application_name)?;
    match (options.pooler, direct) {
        (Pooler::None, _) | (_, Some(_)) => Ok(with_session(login).options([
            ("idle_in_transaction_session_timeout", "60s"),
            ("lock_timeout", "5s"),
            ("statement_timeout", "0"),
        ])),
        (Pooler::Session, None) => Ok(without_startup_options(login)),
        (Pooler::Transaction, None) => bail!(
            "migrations need a session of their own: set CRONBOX_DB_DIRECT_DSN to a DSN that leads past the pooler"
        ),
    }
}

/// The settings of the session that migrates, if its startup packet could not have them.
pub(crate) fn migration_settings(options: &Options) -> Option<&'static str> {
    (options.pooler == Pooler::Session && options.direct_dsn.is_none()).then_some(
        "SET idle_in_transaction_session_timeout = '60s'; SET lock_timeout = '5s'; SET statement_timeout = 0;
         SET default_transaction_isolation = 'read committed'",
    )
}

/// Host or socket, port and name of the database that a DSN leads to; without a name, it is that of the user.
fn database_place(dsn: &str) -> Option<(String, Option<PathBuf>, u16, String)> {
    let login = dsn.parse::<PgConnectOptions>().ok()?;
    let name = login.get_database().unwrap_or(login.get_username()).to_owned();
    Some((login.get_host().to_ascii_lowercase(), login.get_socket().cloned(), login.get_port(), name))
}

pub(crate) fn server_address(options: &PgConnectOptions) -> String {
    format!("{}:{}", options.get_host(), options.get_port())
}

fn parse_login(dsn: &str, application_name: &str) -> anyhow::Result<PgConnectOptions> {
    // The error of the parser may repeat the DSN.
    let parsed = dsn.parse::<PgConnectOptions>().ok();
    let parsed =
        parsed.context("the database DSN cannot be read: write postgres://user:password@host:5432/database")?;
    let login = tls::with_verification(parsed, dsn);
    ensure!(
        !tls::verifies_an_address(&login, dsn),
        "the database DSN has hostaddr, and its certificate would be verified for that address: leave hostaddr out, and let the name of \
         the host lead to the address, for example in /etc/hosts"
    );
    Ok(login.application_name(application_name))
}

fn with_session(login: PgConnectOptions) -> PgConnectOptions {
    login.options([
        // Claims, fences and decisions lock a row and then read what the previous owner of the lock committed.
        ("default_transaction_isolation", "read committed"),
        // Postgres expects more rows than a statement reads, and would compile the plans of some batches for 100 ms.
        ("jit", "off"),
        // On the server: releases the locks of a client that has disappeared.
        ("client_connection_check_interval", "5s"),
        ("tcp_keepalives_idle", "15"),
        ("tcp_keepalives_interval", "5"),
        ("tcp_keepalives_count", "3"),
        ("tcp_user_timeout", "20s"),
        ("timezone", "UTC"),
    ])
}

/// pgbouncer and RDS Proxy refuse `options`; pgbouncer refuses `extra_float_digits`, too, whose default is right.
fn without_startup_options(login: PgConnectOptions) -> PgConnectOptions {
    login.extra_float_digits(None)
}

/// The DSN `direct`, with the user and password of `dsn` if it has none, so that both follow a rotation.
fn with_login_of(direct: &str, dsn: &str) -> String {
    match (Url::parse(direct), Url::parse(dsn)) {
        (Ok(mut direct), Ok(dsn)) if direct.username().is_empty() && direct.has_host() => {
            // Neither fails for a URL with a host. Both are percent-encoded already, and stay so.
            let _set = direct.set_username(dsn.username()).and_then(|()| direct.set_password(dsn.password()));
            direct.into()
        }
        // A DSN that cannot be parsed is refused when it is used.
        _ => direct.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pooler: Pooler, direct_dsn: Option<&str>) -> Options {
        Options {
            dsn: "postgres://u:p%40ss@pooler:6432/d".to_owned(),
            pooler,
            direct_dsn: direct_dsn.map(str::to_owned),
            max_connections: 1,
            acquire_timeout: Duration::from_secs(1),
            application_name: "test",
        }
    }

    #[test]
    fn timeouts_are_those_of_the_sessions() {
        for (name, limit) in [("lock_timeout", LOCK_TIMEOUT), ("statement_timeout", STATEMENT_TIMEOUT)] {
            let secs = format!("{}s", limit.as_secs());
            assert!(TIMEOUTS.contains(&(name, &secs)), "{name}");
            for settings in [SESSION_SETTINGS, BEGIN_ANYWHERE] {
                assert!(settings.contains(&format!("{name} = '{secs}'")), "{name} in {settings}");
            }
        }
    }

    /// RDS Proxy refuses a connection whose startup packet has `options`.
    #[test]
    fn poolers_get_no_startup_options() {
        for pooler in [Pooler::Session, Pooler::Transaction] {
            assert_eq!(connect_options(&options(pooler, None)).unwrap().get_options(), None, "{pooler:?}");
        }
        let direct = connect_options(&options(Pooler::None, None)).unwrap();
        assert!(direct.get_options().unwrap().contains("statement_timeout=15s"));
        let direct = direct_options(&options(Pooler::Transaction, Some("postgres://db/d"))).unwrap().unwrap();
        assert!(direct.get_options().unwrap().contains("lock_timeout=5s"));
    }

    #[test]
    fn every_mode_sets_all_timeouts() {
        for (name, value) in TIMEOUTS {
            assert!(SESSION_SETTINGS.contains(&format!("SET {name} = '{value}'")), "{name}");
            assert!(BEGIN_ANYWHERE.contains(&format!("SET LOCAL {name} = '{value}'")), "{name}");
        }
    }

    #[test]
    fn direct_dsns_take_over_the_login() {
        let dsn = "postgres://u:p%40ss@pooler:6432/d";
        assert_eq!(with_login_of("postgres://db:5432/d", dsn), "postgres://u:p%40ss@db:5432/d");
        assert_eq!(with_login_of("postgres://owner:o@db/d", dsn), "postgres://owner:o@db/d");
        assert_eq!(with_login_of("no dsn", dsn), "no dsn");
    }

    /// Otherwise the error is a certificate that is not valid for the name 127.0.0.1, although the DSN names another.
    #[test]
    fn certificates_are_verified_for_the_host() {
        let host = |dsn: &str| parse_login(dsn, "test").map(|login| login.get_host().to_owned());
        let both = "postgresql://db.example.com:15432/d?hostaddr=127.0.0.1&sslmode";
        let refused = host(&format!("{both}=verify-full")).unwrap_err();
        assert!(refused.to_string().contains("leave hostaddr out"), "{refused}");
        assert_eq!(host(&format!("{both}=disable")).unwrap(), "127.0.0.1");
        assert_eq!(host("postgresql://db.example.com:15432/d?sslmode=verify-full").unwrap(), "db.example.com");
    }

    /// A secret may leave out what the next version writes: the port 5432, for example.
    #[test]
    fn databases_are_compared_without_their_logins() {
        let dsn = |dsn: &str| Options { dsn: dsn.to_owned(), ..options(Pooler::None, None) };
        let one = dsn("postgres://u:p@db/d");
        for same in
            ["postgres://v:q@db:5432/d?sslmode=require", "postgres://v:q@DB/d", "postgres://v:q@other/d?host=db"]
        {
            assert!(one.is_same_database(&dsn(same)), "{same}");
        }
        for other in
            ["postgres://u:p@db2/d", "postgres://u:p@db:5433/d", "postgres://u:p@db/e", "postgres://u:p@db", "d"]
        {
            assert!(!one.is_same_database(&dsn(other)), "{other}");
        }
        assert!(!dsn("d").is_same_database(&dsn("d")), "neither can be read");
    }

    #[test]
    fn migrations_lead_past_the_pooler() {
        let past = migration_options(&options(Pooler::Transaction, Some("postgres://db:5432/d"))).unwrap();
        assert_eq!(server_address(&past), "db:5432");
        assert!(migration_options(&options(Pooler::Transaction, None)).is_err());
        assert!(migration_settings(&options(Pooler::Session, None)).is_some());
        assert!(migration_settings(&options(Pooler::Session, Some("postgres://db/d"))).is_none());
    }
}
