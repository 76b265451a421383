//! The database's DSN, given or fetched from Secrets Manager.

use anyhow::{Context, bail};
use aws_config::BehaviorVersion;
use db_login::Place;

use crate::arguments::Database;

/// Returns the DSN.
///
/// # Errors
/// Returns one sentence, which never contains the secret.
pub(crate) async fn resolve_dsn(database: &Database) -> anyhow::Result<String> {
    let dsn = match (&database.db_dsn, &database.db_secret_arn) {
        (Some(dsn), _) => dsn.clone(),
        (None, Some(arn)) => {
            let place =
                Place { host: database.db_host.clone(), port: database.db_port, name: database.db_name.clone() };
            let made = place.make_dsn(&fetch(arn).await?);
            made.context("the secret cannot be used: check CRONBOX_DB_SECRET_ARN and CRONBOX_DB_HOST")?
        }
        (None, None) => bail!("CRONBOX_DB_DSN is missing: set it, or CRONBOX_DB_SECRET_ARN, in the environment"),
    };
    Ok(db::with_ca(&dsn, database.db_ca_file.as_deref()))
}

/// The text of the secret, which is the DSN or has the login.
async fn fetch(arn: &str) -> anyhow::Result<String> {
    let client = aws_sdk_secretsmanager::Client::new(&aws_config::load_defaults(BehaviorVersion::v2026_01_12()).await);
    let secret = client.get_secret_value().secret_id(arn).send().await;
    let secret =
        secret.with_context(|| format!("the secret {arn} cannot be read: check CRONBOX_DB_SECRET_ARN and the role"))?;
    secret.secret_string.with_context(|| format!("the secret {arn} is binary: store a DSN, or RDS's JSON"))
}
