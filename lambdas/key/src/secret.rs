//! Step 6 of 7: the versions of a secret in Secrets Manager.

use anyhow::Context;
use aws_config::BehaviorVersion;
use aws_sdk_secretsmanager::operation::get_secret_value::GetSecretValueError;

/// A version of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Current,
    /// The one that was current before.
    Previous,
}

/// Fetches a version of the secret, without spaces around it; `None` = there is none.
pub(crate) async fn fetch_version(arn: &str, version: Version) -> anyhow::Result<Option<String>> {
    let client = aws_sdk_secretsmanager::Client::new(&aws_config::load_defaults(BehaviorVersion::v2026_01_12()).await);
    let stage = match version {
        Version::Current => None,
        Version::Previous => Some("AWSPREVIOUS".to_owned()),
    };
    let secret = match client.get_secret_value().secret_id(arn).set_version_stage(stage).send().await {
        Err(error) if error.as_service_error().is_some_and(GetSecretValueError::is_resource_not_found_exception) => {
            return Ok(None);
        }
        answer => answer.with_context(|| format!("the secret {arn} cannot be read"))?,
    };
    let key = secret.secret_string.with_context(|| format!("the secret {arn} is binary"))?;
    Ok(Some(key.trim().to_owned()))
}
