//! Steps 1 and 7 of 7: the signing secrets of teams. A team's creation encrypts them, and an attempt decrypts them.

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};

use super::cache::Secrets;
use super::error::SecretError;
use super::purpose::Purpose;
use crate::signing::SigningSecret;

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
        self.seal_stored_text(tx, team, Purpose::SigningSecret, secret, now).await
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
        self.open_stored_text(pool, team, Purpose::SigningSecret, &stored.0).await.map(SigningSecret)
    }
}
