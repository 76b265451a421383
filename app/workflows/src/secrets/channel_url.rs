//! Steps 1 and 7 of 7: the URLs of channels for notifications, whose paths are secrets.

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};

use super::cache::Secrets;
use super::error::SecretError;
use super::purpose::Purpose;
use super::stored_text::ciphertext_of;

/// A channel with its stored URL.
pub(super) struct StoredUrl {
    pub(super) id: i64,
    pub(super) team_id: i64,
    pub(super) url: String,
}

impl Secrets {
    /// Returns the URL of a channel as it is stored: encrypted, or as text if this instance encrypts nothing.
    ///
    /// # Errors
    /// Fails if the database fails, or if this instance does not have the key of the team.
    pub async fn seal_channel_url(
        &self,
        tx: &mut PgConnection,
        team: i64,
        url: &str,
        now: DateTime<Utc>,
    ) -> Result<String, SecretError> {
        self.seal_stored_text(tx, team, Purpose::ChannelUrl, url, now).await
    }

    /// Decrypts the stored URL of a channel.
    ///
    /// # Errors
    /// Fails if it cannot be decrypted, or if the database fails.
    pub async fn open_channel_url(&self, pool: &PgPool, team: i64, stored: &str) -> Result<String, SecretError> {
        self.open_stored_text(pool, team, Purpose::ChannelUrl, stored).await
    }
}

/// Encrypts the URLs that `is_old` selects among those of a team, or of all teams; returns their number.
pub(super) async fn seal_channel_urls(
    pool: &PgPool,
    secrets: &Secrets,
    team: Option<i64>,
    is_old: impl Fn(Option<&str>) -> bool,
    now: DateTime<Utc>,
) -> Result<u64, SecretError> {
    let mut sealed = 0;
    let stored = list_channel_urls(&mut *pool.acquire().await?, team).await?;
    for StoredUrl { id, team_id, url } in stored.iter().filter(|stored| is_old(ciphertext_of(&stored.url))) {
        let text = secrets.open_channel_url(pool, *team_id, url).await?;
        let mut tx = db::begin_transaction(pool).await?;
        let next = secrets.seal_channel_url(&mut tx, *team_id, &text, now).await?;
        sealed += write_channel_url(&mut tx, *id, url, &next).await?;
        tx.commit().await?;
    }
    Ok(sealed)
}

async fn list_channel_urls(db: &mut PgConnection, team: Option<i64>) -> sqlx::Result<Vec<StoredUrl>> {
    sqlx::query_as!(
        StoredUrl,
        r#"
        -- the URLs of channels, of one team or of all
        SELECT id, team_id, url AS "url!"
          FROM notification_channels
         WHERE url IS NOT NULL AND ($1::bigint IS NULL OR team_id = $1)
         ORDER BY id
        "#,
        team,
    )
    .fetch_all(db)
    .await
}

async fn write_channel_url(tx: &mut PgConnection, id: i64, before: &str, url: &str) -> sqlx::Result<u64> {
    let done = sqlx::query!(
        r#"
        -- encrypt the URL of a channel, unless an edit has changed it meanwhile
        UPDATE notification_channels SET url = $2 WHERE id = $1 AND url = $3
        "#,
        id,
        url,
        before,
    )
    .execute(tx)
    .await?;
    Ok(done.rows_affected())
}
