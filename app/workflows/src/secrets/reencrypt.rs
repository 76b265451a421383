//! Steps 1 and 7 of 7: encrypts everything with the current key and the newest data keys, in batches, while instances run.

use chrono::{DateTime, Utc};
use db::PgPool;
use serde::Serialize;

use super::cache::Secrets;
use super::channel_url::seal_channel_urls;
use super::error::SecretError;
use super::renewal::{insert_next_data_keys, replace_old_ciphertexts};
use super::text::{rewrap_data_keys, seal_signing_secrets, seal_workflows};

/// Whether teams get new data keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataKeys {
    /// They keep theirs.
    Kept,
    /// Each gets a new one, which encrypts all its values.
    Renewed,
}

/// What a re-encryption has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reencrypted {
    /// Data keys that the current key encrypts now.
    pub data_keys: u64,
    /// Teams that have a new data key.
    pub new_data_keys: u64,
    /// Teams whose signing secrets were text, or encrypted with an older data key.
    pub signing_secrets: u64,
    /// Named secrets that were encrypted with an older data key.
    pub team_secrets: u64,
    /// Workflows whose header values were text, or encrypted with an older data key.
    pub workflows: u64,
    /// Channels whose URL was text, or encrypted with an older data key.
    pub channels: u64,
}

/// Encrypts everything with the current key and the newest data keys, in batches.
///
/// # Errors
/// Fails if a previous key is missing, or if the database fails. What was done until then stays.
pub async fn reencrypt_secrets(
    pool: &PgPool,
    secrets: &Secrets,
    data_keys: DataKeys,
    now: DateTime<Utc>,
) -> Result<Reencrypted, SecretError> {
    let mut done = Reencrypted { data_keys: rewrap_data_keys(pool, secrets).await?, ..Reencrypted::default() };
    if data_keys == DataKeys::Renewed {
        done.new_data_keys = insert_next_data_keys(pool, secrets, now).await?;
    }
    done.signing_secrets = seal_signing_secrets(pool, secrets, now).await?;
    done.workflows = seal_workflows(pool, secrets, now).await?;
    if secrets.encrypts() {
        done.channels = seal_channel_urls(pool, secrets, None, |ciphertext| ciphertext.is_none(), now).await?;
    }
    let replaced = replace_old_ciphertexts(pool, secrets, now).await?;
    done.signing_secrets += replaced.signing_secrets;
    done.team_secrets = replaced.team_secrets;
    done.workflows += replaced.workflows;
    done.channels += replaced.channels;
    Ok(done)
}
