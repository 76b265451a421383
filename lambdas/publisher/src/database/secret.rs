//! Step 3 of 7: the database's DSN, given or fetched from Secrets Manager.

use anyhow::{Context, bail};
use aws_config::BehaviorVersion;
use serde::Deserialize;
use url::Url;

use crate::config::Database;

/// The secret that RDS manages. RDS itself writes user name and password only; what the console's wizard and the
/// rotation templates write has the other three too.
#[derive(Deserialize)]
struct Rds {
    username: String,
    password: String,
    host: Option<String>,
    port: Option<u16>,
    dbname: Option<String>,
}

/// Returns the DSN of the outbox.
///
/// # Errors
/// Returns one sentence, which never contains the secret.
pub(crate) async fn resolve_dsn(database: &Database) -> anyhow::Result<String> {
    let dsn = match (&database.db_dsn, &database.db_secret_arn) {
        (Some(dsn), _) => dsn.clone(),
        (None, Some(arn)) => read(&fetch(arn).await?, database)?,
        (None, None) => bail!("CRONBOX_DB_DSN is missing: set it, or CRONBOX_DB_SECRET_ARN, in the environment"),
    };
    Ok(db::with_ca(&dsn, database.db_ca_file.as_deref()))
}

async fn fetch(arn: &str) -> anyhow::Result<String> {
    let client = aws_sdk_secretsmanager::Client::new(&aws_config::load_defaults(BehaviorVersion::v2026_01_12()).await);
    let secret = client.get_secret_value().secret_id(arn).send().await;
    let secret =
        secret.with_context(|| format!("the secret {arn} cannot be read: check CRONBOX_DB_SECRET_ARN and the role"))?;
    secret.secret_string.with_context(|| format!("the secret {arn} is binary: store a DSN, or RDS's JSON"))
}

/// Parses a DSN, or makes one from RDS's JSON; what the JSON does not name, `database` does.
fn read(secret: &str, database: &Database) -> anyhow::Result<String> {
    let secret = secret.trim();
    if !secret.starts_with('{') {
        return Ok(secret.to_owned());
    }
    let Ok(rds) = serde_json::from_str::<Rds>(secret) else {
        bail!("the database secret is neither a DSN nor JSON with username and password");
    };
    let Some(host) = rds.host.as_deref().or(database.db_host.as_deref()) else {
        bail!("the database secret names no host: set CRONBOX_DB_HOST in the environment");
    };
    let port = rds.port.or(database.db_port);
    let name = rds.dbname.as_deref().or(database.db_name.as_deref()).unwrap_or("postgres");
    let Some(dsn) = dsn(&rds, host, port, name) else {
        bail!("the host of the database is not a host name: check the secret, or CRONBOX_DB_HOST");
    };
    Ok(dsn)
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

    /// A database that the environment names: host, port and name.
    fn database(host: Option<&str>, port: Option<u16>, name: Option<&str>) -> Database {
        Database {
            db_dsn: None,
            db_secret_arn: None,
            db_host: host.map(str::to_owned),
            db_port: port,
            db_name: name.map(str::to_owned),
            db_ca_file: None,
            pooler: db::Pooler::None,
            db_direct_dsn: None,
        }
    }

    #[test]
    fn a_dsn_is_taken_as_it_is() {
        assert_eq!(read(" postgres://u:p@h/d\n", &database(Some("other"), None, None)).unwrap(), "postgres://u:p@h/d");
    }

    /// Also if the password contains characters that end a part of a URL.
    #[test]
    fn rds_json_becomes_a_dsn() {
        let json = r#"{"username":"cron","password":"p@ss/w:rd?","host":"db.internal","port":5433,"dbname":"cronbox","engine":"postgres"}"#;
        let dsn = read(json, &database(Some("other"), Some(1), Some("other"))).unwrap();
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
        let dsn = read(json, &database(Some("db.internal"), Some(5433), Some("cronbox"))).unwrap();
        assert_eq!(dsn, "postgres://cronbox:secret@db.internal:5433/cronbox?sslmode=verify-full");
        let error = read(json, &database(None, None, None)).unwrap_err().to_string();
        assert_eq!(error, "the database secret names no host: set CRONBOX_DB_HOST in the environment");
    }

    /// A secret that is neither a DSN nor RDS's JSON is refused.
    #[test]
    fn an_error_does_not_repeat_the_secret() {
        let error = read(r#"{"password":"hunter2"}"#, &database(None, None, None)).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
