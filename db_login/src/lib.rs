//! Steps 1, 3 and 7 of 7: the login to the database as a secret store writes it, for the app and the publisher.
//!
//! Postgres checks a password only when a client connects, so a rotation shows when it refuses a new connection. The app
//! then reads its file again, and the publisher its secret.

use anyhow::bail;
use serde::Deserialize;
use url::Url;

/// Where the database is, if the login does not say it.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// Its host.
    pub host: Option<String>,
    /// Its port.
    pub port: Option<u16>,
    /// Its name.
    pub name: Option<String>,
}

/// The JSON of RDS. RDS itself writes user name and password only; what the console's wizard and the rotation templates
/// write has the other three too.
#[derive(Deserialize)]
struct Rds {
    username: String,
    password: String,
    host: Option<String>,
    port: Option<u16>,
    dbname: Option<String>,
}

impl Place {
    /// The place that a DSN names; `None` if it names no host.
    #[must_use]
    pub fn of_dsn(dsn: &str) -> Option<Self> {
        let dsn = Url::parse(dsn).ok()?;
        let name = dsn.path().trim_start_matches('/');
        Some(Self {
            host: Some(dsn.host_str()?.to_owned()),
            port: dsn.port(),
            name: (!name.is_empty()).then(|| name.to_owned()),
        })
    }

    /// Returns the DSN that the login is, or the one of user name and password in RDS's JSON.
    ///
    /// # Errors
    /// Returns one sentence, which never contains the login.
    pub fn make_dsn(&self, login: &str) -> anyhow::Result<String> {
        let login = login.trim();
        if !login.starts_with('{') {
            return Ok(login.to_owned());
        }
        let Ok(rds) = serde_json::from_str::<Rds>(login) else {
            bail!("the login to the database is neither a DSN nor JSON with username and password");
        };
        let Some(host) = rds.host.as_deref().or(self.host.as_deref()) else {
            bail!("the login to the database names no host");
        };
        let port = rds.port.or(self.port);
        let name = rds.dbname.as_deref().or(self.name.as_deref()).unwrap_or("postgres");
        let Some(dsn) = dsn(&rds, host, port, name) else { bail!("the host of the database is not a host name") };
        Ok(dsn)
    }
}

fn dsn(rds: &Rds, host: &str, port: Option<u16>, name: &str) -> Option<String> {
    let mut dsn = Url::parse("postgres://host").ok()?;
    dsn.set_host(Some(host)).ok()?;
    dsn.set_port(port).ok()?;
    dsn.set_username(&rds.username).ok()?;
    dsn.set_password(Some(&rds.password)).ok()?;
    dsn.set_path(name);
    // RDS always uses TLS, whatever the host name is.
    dsn.set_query(Some("sslmode=verify-full"));
    Some(dsn.to_string())
}

#[cfg(test)]
mod tests {
    use sqlx::postgres::{PgConnectOptions, PgSslMode};

    use super::*;

    fn place(host: Option<&str>, port: Option<u16>, name: Option<&str>) -> Place {
        Place { host: host.map(str::to_owned), port, name: name.map(str::to_owned) }
    }

    #[test]
    fn a_dsn_is_taken_as_it_is() {
        assert_eq!(place(Some("other"), None, None).make_dsn(" postgres://u:p@h/d\n").unwrap(), "postgres://u:p@h/d");
    }

    /// Also if the password contains characters that end a part of a URL.
    #[test]
    fn rds_json_becomes_a_dsn() {
        let json = r#"{"username":"cron","password":"p@ss/w:rd?","host":"db.internal","port":5433,"dbname":"cronbox","engine":"postgres"}"#;
        let dsn = place(Some("other"), Some(1), Some("other")).make_dsn(json).unwrap();
        let options: PgConnectOptions = dsn.parse().unwrap();
        assert_eq!((options.get_host(), options.get_port()), ("db.internal", 5433));
        assert_eq!((options.get_username(), options.get_database()), ("cron", Some("cronbox")));
        assert_eq!(Url::parse(&dsn).unwrap().password(), Some("p%40ss%2Fw%3Ard%3F"));
        assert!(matches!(options.get_ssl_mode(), PgSslMode::VerifyFull));
    }

    /// RDS writes user name and password only; the environment names the rest.
    #[test]
    fn two_fields_and_a_host_become_a_dsn() {
        let json = r#"{"username":"cronbox","password":"secret"}"#;
        let dsn = place(Some("db.internal"), Some(5433), Some("cronbox")).make_dsn(json).unwrap();
        assert_eq!(dsn, "postgres://cronbox:secret@db.internal:5433/cronbox?sslmode=verify-full");
        let error = place(None, None, None).make_dsn(json).unwrap_err().to_string();
        assert_eq!(error, "the login to the database names no host");
    }

    /// A secret that is neither a DSN nor RDS's JSON is refused.
    #[test]
    fn an_error_does_not_repeat_the_place() {
        let error = place(None, None, None).make_dsn(r#"{"password":"hunter2"}"#).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }

    /// The app has a DSN without a password, which names the database.
    #[test]
    fn a_dsn_names_the_database() {
        let place = Place::of_dsn("postgres://db.internal:5433/cronbox?sslmode=verify-full").unwrap();
        let dsn = place.make_dsn(r#"{"username":"cronbox_serve","password":"secret"}"#).unwrap();
        assert_eq!(dsn, "postgres://cronbox_serve:secret@db.internal:5433/cronbox?sslmode=verify-full");
        assert!(Place::of_dsn("cronbox").is_none());
    }
}
