//! Steps 1 and 7 of 7: secrets in a column of text: encrypted, or as text if an instance encrypts nothing.

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};

use super::cache::Secrets;
use super::error::SecretError;
use super::purpose::Purpose;

/// What an encrypted text begins with.
const SEALED: &str = "sealed:";

/// Returns the ciphertext of a stored text; `None` if it is not encrypted.
pub(super) fn ciphertext_of(stored: &str) -> Option<&str> {
    stored.strip_prefix(SEALED)
}

impl Secrets {
    /// Returns a text as it is stored.
    pub(super) async fn seal_stored_text(
        &self,
        tx: &mut PgConnection,
        team: i64,
        purpose: Purpose<'_>,
        text: &str,
        now: DateTime<Utc>,
    ) -> Result<String, SecretError> {
        match self.newest_data_key(tx, team, now).await? {
            Some(key) => Ok(format!("{SEALED}{}", key.seal_text(team, purpose, text)?)),
            None => Ok(text.to_owned()),
        }
    }

    /// Returns the text of what is stored.
    pub(super) async fn open_stored_text(
        &self,
        pool: &PgPool,
        team: i64,
        purpose: Purpose<'_>,
        stored: &str,
    ) -> Result<String, SecretError> {
        let Some(ciphertext) = ciphertext_of(stored) else { return Ok(stored.to_owned()) };
        self.load_from_pool(pool, team, ciphertext).await?;
        self.open_text(team, purpose, ciphertext)
    }
}
