//! TLS to the database, verified unless the DSN says otherwise.
//!
//! sqlx's default, `prefer`, uses no encryption if the server claims not to support TLS, and accepts every certificate,
//! so an attacker in between could read the password. So a DSN without `sslmode` gets `verify-full`, except for a server on
//! this machine.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use url::Url;

/// Adds the certificate authorities of `ca_file` to the DSN, unless the DSN names its own.
#[must_use]
pub fn with_ca(dsn: &str, ca_file: Option<&Path>) -> String {
    match (Url::parse(dsn), ca_file) {
        (Ok(mut url), Some(ca_file)) if !says(&url, &["sslrootcert", "ssl-root-cert", "ssl-ca"]) => {
            url.query_pairs_mut().append_pair("sslrootcert", &ca_file.to_string_lossy());
            url.into()
        }
        // A DSN that cannot be parsed is refused when it is used.
        _ => dsn.to_owned(),
    }
}

/// Parses the path of a bundle of certificates from a command line.
///
/// # Errors
/// Returns a sentence if the file cannot be read.
pub fn ca_file(path: &str) -> Result<PathBuf, String> {
    std::fs::File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    Ok(path.into())
}

/// Verifies the server, and its name, unless the DSN decides or the server is on this machine.
pub(crate) fn with_verification(options: PgConnectOptions, dsn: &str) -> PgConnectOptions {
    let is_decided = Url::parse(dsn).is_ok_and(|url| says(&url, &["sslmode", "ssl-mode"]));
    if is_decided || is_here(&options) { options } else { options.ssl_mode(PgSslMode::VerifyFull) }
}

/// Whether the certificate would be verified for an address that `hostaddr` puts in the place of the host. libpq keeps the
/// host's name for the certificate; sqlx does not.
pub(crate) fn verifies_an_address(options: &PgConnectOptions, dsn: &str) -> bool {
    let has_host = |url: &Url| url.host_str().is_some_and(|host| !host.is_empty());
    let has_both = Url::parse(dsn).is_ok_and(|url| has_host(&url) && says(&url, &["hostaddr"]));
    has_both && matches!(options.get_ssl_mode(), PgSslMode::VerifyFull)
}

fn says(dsn: &Url, names: &[&str]) -> bool {
    dsn.query_pairs().any(|(name, _)| names.contains(&&*name))
}

fn is_here(options: &PgConnectOptions) -> bool {
    let host = options.get_host().trim_start_matches('[').trim_end_matches(']');
    let is_loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_loopback || host.starts_with('/') || options.get_socket().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A DSN with an `sslmode` decides itself, and a server on this machine needs no verification.
    #[test]
    fn remote_servers_are_verified() {
        let mode = |dsn: &str| with_verification(dsn.parse().unwrap(), dsn).get_ssl_mode();
        for (dsn, expected) in [
            ("postgres://u:p@db.internal:5432/d", PgSslMode::VerifyFull),
            ("postgres://u:p@10.0.0.1/d", PgSslMode::VerifyFull),
            ("postgres://u:p@localhost.evil.example/d", PgSslMode::VerifyFull),
            ("postgres://u:p@db.internal/d?sslmode=require", PgSslMode::Require),
            ("postgres://u:p@db.internal/d?ssl-mode=disable", PgSslMode::Disable),
            ("postgres://u:p@db.internal/d?sslmode=prefer", PgSslMode::Prefer),
            ("postgres://u:p@127.0.0.1/d", PgSslMode::Prefer),
            ("postgres://u:p@[::1]/d", PgSslMode::Prefer),
            ("postgres://u:p@localhost/d", PgSslMode::Prefer),
            ("postgres://u:p@localhost/d?sslmode=verify-full", PgSslMode::VerifyFull),
            ("postgres://u:p@db.internal/d?host=/var/run/postgresql", PgSslMode::Prefer),
            ("postgres://u:p@%2Fvar%2Frun%2Fpostgresql/d", PgSslMode::Prefer),
        ] {
            assert_eq!(format!("{:?}", mode(dsn)), format!("{expected:?}"), "{dsn}");
        }
    }

    /// A DSN that names its own certificate authorities keeps them.
    #[test]
    fn bundles_are_added_to_the_dsn() {
        let bundle = Some(Path::new("/var/task/rds-ca.pem"));
        let dsn = "postgres://u:p%40ss@db/d?sslmode=verify-full";
        assert_eq!(with_ca(dsn, None), dsn);
        assert_eq!(with_ca(dsn, bundle), format!("{dsn}&sslrootcert=%2Fvar%2Ftask%2Frds-ca.pem"));
        for own in ["postgres://u@db/d?sslrootcert=/own.pem", "postgres://u@db/d?ssl-ca=/own.pem"] {
            assert_eq!(with_ca(own, bundle), own);
        }
        assert_eq!(with_ca("no dsn", bundle), "no dsn");
    }
}
