//! Step 6 of 7: the scheduler key, fetched once and cached.

use anyhow::Context;
use aws_config::BehaviorVersion;
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
        let key = fetch(arn).await?;
        *fetched = Some(key.clone());
        Ok(key)
    }
}

async fn fetch(arn: &str) -> anyhow::Result<String> {
    let client = aws_sdk_secretsmanager::Client::new(&aws_config::load_defaults(BehaviorVersion::v2026_01_12()).await);
    let secret = client.get_secret_value().secret_id(arn).send().await;
    let secret = secret.with_context(|| format!("the secret {arn} cannot be read"))?;
    let key = secret.secret_string.with_context(|| format!("the secret {arn} is binary"))?;
    Ok(key.trim().to_owned())
}
