//! Steps 1 and 7 of 7: the signing secrets of teams. A team's creation encrypts them, and an attempt decrypts them.

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};

use super::cache::Secrets;
use super::error::SecretError;
use super::purpose::Purpose;
use crate::signing::SigningSecret;

/// What a signing secret that is encrypted begins with.
const SEALED: &str = "sealed:";

/// Returns the ciphertext of a stored signing secret; `None` if it is text.
pub(super) fn ciphertext_of(stored: &str) -> Option<&str> {
    stored.strip_prefix(SEALED)
}

impl Secrets {
    /// Returns a signing secret as it is stored: encrypted, or as text if this instance encrypts nothing.
    ///
    /// # Errors
    /// Fails if the database fails, or if this instance does not have the key of the team.
    pub async fn seal_signing_secret(
        &self,
        tx: &mut PgConnection,
        team: i64,
        secret: &str,
        now: DateTime<Utc>,
    ) -> Result<String, SecretError> {
        match self.newest_data_key(tx, team, now).await? {
            Some(key) => Ok(format!("{SEALED}{}", key.seal_text(team, Purpose::SigningSecret, secret)?)),
            None => Ok(secret.to_owned()),
        }
    }

    /// Decrypts a stored signing secret.
    ///
    /// # Errors
    /// Fails if it cannot be decrypted, or if the database fails.
    pub async fn open_signing_secret(
        &self,
        pool: &PgPool,
        team: i64,
        stored: &SigningSecret,
    ) -> Result<SigningSecret, SecretError> {
        let Some(ciphertext) = ciphertext_of(&stored.0) else { return Ok(stored.clone()) };
        self.load_from_pool(pool, team, ciphertext).await?;
        self.open_text(team, Purpose::SigningSecret, ciphertext).map(SigningSecret)
    }
}
