//! The database's DSN, given or fetched from Secrets Manager.

use anyhow::{Context, bail};
use aws_config::BehaviorVersion;
use aws_sdk_secretsmanager::Client;
use aws_sdk_secretsmanager::operation::get_secret_value::GetSecretValueError;
use db_login::Place;

use crate::arguments::Database;

/// Returns the DSN.
///
/// # Errors
/// Returns one sentence, which never contains the secret.
pub(crate) async fn resolve_dsn(database: &Database) -> anyhow::Result<String> {
    let dsn = match (&database.db_dsn, &database.db_secret_arn) {
        (Some(dsn), _) => dsn.clone(),
        (None, Some(arn)) => make_dsn(database, &fetch(arn).await?)?,
        (None, None) => bail!("CRONBOX_DB_DSN is missing: set it, or CRONBOX_DB_SECRET_ARN, in the environment"),
    };
    Ok(db::with_ca(&dsn, database.db_ca_file.as_deref()))
}

/// Returns the DSN in the secret's version before the current one; `None` = there is none.
///
/// # Errors
/// Returns one sentence, which never contains the secret.
pub(crate) async fn find_previous_dsn(database: &Database) -> anyhow::Result<Option<String>> {
    let Some(arn) = &database.db_secret_arn else { return Ok(None) };
    let Some(secret) = fetch_previous(arn).await? else { return Ok(None) };
    Ok(Some(db::with_ca(&make_dsn(database, &secret)?, database.db_ca_file.as_deref())))
}

fn make_dsn(database: &Database, secret: &str) -> anyhow::Result<String> {
    let place = Place { host: database.db_host.clone(), port: database.db_port, name: database.db_name.clone() };
    place.make_dsn(secret).context("the secret cannot be used: check CRONBOX_DB_SECRET_ARN and CRONBOX_DB_HOST")
}

/// The text of the secret, which is the DSN or has the login.
async fn fetch(arn: &str) -> anyhow::Result<String> {
    let secret = new_client().await.get_secret_value().secret_id(arn).send().await;
    let secret =
        secret.with_context(|| format!("the secret {arn} cannot be read: check CRONBOX_DB_SECRET_ARN and the role"))?;
    secret.secret_string.with_context(|| format!("the secret {arn} is binary: store a DSN, or RDS's JSON"))
}

/// The text of the secret's version before the current one; `None`: there is none, or it is binary.
async fn fetch_previous(arn: &str) -> anyhow::Result<Option<String>> {
    let request = new_client().await.get_secret_value().secret_id(arn).version_stage("AWSPREVIOUS");
    match request.send().await {
        Err(error) if error.as_service_error().is_some_and(GetSecretValueError::is_resource_not_found_exception) => {
            Ok(None)
        }
        answer => Ok(answer.with_context(|| format!("the previous version of {arn} cannot be read"))?.secret_string),
    }
}

async fn new_client() -> Client {
    Client::new(&aws_config::load_defaults(BehaviorVersion::v2026_01_12()).await)
}
