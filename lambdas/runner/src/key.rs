//! Step 6 of 7: the scheduler key, fetched once and cached.

use anyhow::Context;
use aws_config::BehaviorVersion;
use aws_sdk_secretsmanager::operation::get_secret_value::GetSecretValueError;
use tokio::sync::Mutex;

use crate::config::KeySource;

/// The key, from its source.
pub(crate) struct Key {
    source: KeySource,
    fetched: Mutex<Option<String>>,
}

/// Whether the app has refused the cached key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Use it.
    Good,
    /// It was rotated: fetch it again.
    Refused,
}

impl Key {
    pub(crate) fn new(source: KeySource) -> Self {
        Key { source, fetched: Mutex::new(None) }
    }

    /// Whether fetching again may give another key.
    pub(crate) fn can_change(&self) -> bool {
        matches!(self.source, KeySource::Secret(_))
    }

    pub(crate) async fn load_key(&self, kept: Kept) -> anyhow::Result<String> {
        let arn = match &self.source {
            KeySource::Value(key) => return Ok(key.clone()),
            KeySource::Secret(arn) => arn,
        };
        let mut fetched = self.fetched.lock().await;
        if kept == Kept::Good
            && let Some(key) = &*fetched
        {
            return Ok(key.clone());
        }
        let key = fetch(arn, None).await?;
        let key =
            key.with_context(|| format!("the secret {arn} cannot be read: it does not exist, or has no value"))?;
        *fetched = Some(key.clone());
        Ok(key)
    }

    /// Fetches the key that the secret had before its present one; `None` = it had none.
    pub(crate) async fn load_previous_key(&self) -> anyhow::Result<Option<String>> {
        match &self.source {
            KeySource::Value(_) => Ok(None),
            KeySource::Secret(arn) => fetch(arn, Some("AWSPREVIOUS")).await,
        }
    }

    /// Keeps a key that the app has accepted, until it refuses it.
    pub(crate) async fn keep_key(&self, key: String) {
        *self.fetched.lock().await = Some(key);
    }
}

/// Fetches the version of the secret with this label, without one the current version; `None` = there is none.
async fn fetch(arn: &str, version: Option<&str>) -> anyhow::Result<Option<String>> {
    let client = aws_sdk_secretsmanager::Client::new(&aws_config::load_defaults(BehaviorVersion::v2026_01_12()).await);
    let request = client.get_secret_value().secret_id(arn).set_version_stage(version.map(str::to_owned));
    let secret = match request.send().await {
        Err(error) if error.as_service_error().is_some_and(GetSecretValueError::is_resource_not_found_exception) => {
            return Ok(None);
        }
        answer => answer.with_context(|| format!("the secret {arn} cannot be read"))?,
    };
    let key = secret.secret_string.with_context(|| format!("the secret {arn} is binary"))?;
    Ok(Some(key.trim().to_owned()))
}
