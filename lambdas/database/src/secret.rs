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

async fn fetch(arn: &str) -> anyhow::Result<String> {
    let secret = get_secret_value(arn).await;
    let secret =
        secret.with_context(|| format!("the secret {arn} cannot be read: check CRONBOX_DB_SECRET_ARN and the role"))?;
    secret.with_context(|| format!("the secret {arn} is binary: store a DSN, or RDS's JSON"))
}

/// Returns the text of a secret of Secrets Manager, which is not the DSN; the value has no spaces around it.
///
/// # Errors
/// Returns one sentence, which never contains the secret.
pub async fn fetch_key(arn: &str) -> anyhow::Result<String> {
    let secret = get_secret_value(arn).await.with_context(|| format!("the secret {arn} cannot be read"))?;
    Ok(secret.with_context(|| format!("the secret {arn} is binary"))?.trim().to_owned())
}

/// The text of a secret; `None`: it is binary.
async fn get_secret_value(arn: &str) -> anyhow::Result<Option<String>> {
    let client = aws_sdk_secretsmanager::Client::new(&aws_config::load_defaults(BehaviorVersion::v2026_01_12()).await);
    Ok(client.get_secret_value().secret_id(arn).send().await?.secret_string)
}
