//! Steps 1 and 7 of 7: gives each team a new data key, and encrypts with it what an older one encrypts.
//!
//! A thief who has a key of the environment and a copy of the database has the data keys of that time. Only new ones protect
//! later values. Each step can be repeated: an interrupted one continues.

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use serde_json::Value;
use zeroize::Zeroizing;

use super::cache::Secrets;
use super::channel_url::seal_channel_urls;
use super::data_keys::insert_data_key;
use super::error::SecretError;
use super::purpose::Purpose;
use super::stored_text::ciphertext_of;
use super::team_secrets::lock_team;
use super::text::{WRITTEN_AT_ONCE, write_action, write_signing_secrets};
use crate::definition::sealed::sealed_text;
use crate::signing::SigningSecret;

/// The newest data key of a team.
struct Newest {
    team_id: i64,
    version: i32,
}

/// What has a new ciphertext.
#[derive(Default)]
pub(super) struct Replaced {
    /// Teams, for their signing secrets.
    pub(super) signing_secrets: u64,
    /// Named secrets.
    pub(super) team_secrets: u64,
    /// Workflows, for their header values.
    pub(super) workflows: u64,
    /// Channels, for their URLs.
    pub(super) channels: u64,
}

/// Inserts a new data key for each team that has one, and returns their number.
///
/// # Errors
/// Fails if there is no key, or if the database fails. The data keys inserted until then stay, and encrypt new values.
pub(super) async fn insert_next_data_keys(
    pool: &PgPool,
    secrets: &Secrets,
    now: DateTime<Utc>,
) -> Result<u64, SecretError> {
    let Some(current) = secrets.0.keyring.current() else { return Ok(0) };
    let newest = list_newest_data_keys(&mut *pool.acquire().await?).await?;
    for Newest { team_id, version } in &newest {
        insert_data_key(&mut *pool.acquire().await?, *team_id, version + 1, current, now).await?;
    }
    Ok(newest.len() as u64)
}

/// Encrypts again what a data key before the newest one of its team encrypts.
///
/// # Errors
/// Fails if a value cannot be decrypted, or if the database fails. What was done until then stays.
pub(super) async fn replace_old_ciphertexts(
    pool: &PgPool,
    secrets: &Secrets,
    now: DateTime<Utc>,
) -> Result<Replaced, SecretError> {
    let mut done = Replaced::default();
    let newest = list_newest_data_keys(&mut *pool.acquire().await?).await?;
    for team in newest.iter().filter(|team| team.version > 1) {
        done.signing_secrets += replace_signing_secrets(pool, secrets, team, now).await?;
        done.team_secrets += replace_team_secrets(pool, secrets, team, now).await?;
        done.workflows += replace_headers(pool, secrets, team, now).await?;
        let is_old = |ciphertext: Option<&str>| ciphertext.is_some_and(|ciphertext| team.is_old(ciphertext));
        done.channels += seal_channel_urls(pool, secrets, Some(team.team_id), is_old, now).await?;
    }
    Ok(done)
}

impl Newest {
    fn is_old(&self, ciphertext: &str) -> bool {
        ciphertext.split(':').next().and_then(|version| version.parse().ok()).is_none_or(|of: i32| of < self.version)
    }
}

async fn replace_signing_secrets(
    pool: &PgPool,
    secrets: &Secrets,
    team: &Newest,
    now: DateTime<Utc>,
) -> Result<u64, SecretError> {
    let mut tx = db::begin_transaction(pool).await?;
    let stored = lock_signing_secrets(&mut tx, team.team_id).await?;
    let is_old = |secret: &String| ciphertext_of(secret).is_some_and(|ciphertext| team.is_old(ciphertext));
    if !stored.iter().flatten().any(is_old) {
        return Ok(0);
    }
    let mut replaced = Vec::new();
    for secret in &stored {
        replaced.push(match secret {
            Some(secret) => {
                let ciphertext = ciphertext_of(secret).unwrap_or_default();
                secrets.load_data_key(&mut tx, team.team_id, ciphertext).await?;
                let opened = secrets.open_signing_secret(pool, team.team_id, &SigningSecret(secret.clone())).await?;
                Some(secrets.seal_signing_secret(&mut tx, team.team_id, &opened.0, now).await?)
            }
            None => None,
        });
    }
    write_signing_secrets(&mut tx, team.team_id, &replaced).await?;
    tx.commit().await?;
    Ok(1)
}

/// The named secrets of a team are few, and their writers wait for the lock of the team.
async fn replace_team_secrets(
    pool: &PgPool,
    secrets: &Secrets,
    team: &Newest,
    now: DateTime<Utc>,
) -> Result<u64, SecretError> {
    let mut tx = db::begin_transaction(pool).await?;
    lock_team(&mut tx, team.team_id).await?;
    let stored = list_ciphertexts(&mut tx, team.team_id).await?;
    let Some(key) = secrets.newest_data_key(&mut tx, team.team_id, now).await? else { return Ok(0) };
    let mut replaced = 0;
    for Named { name, ciphertext, allowed_origins } in stored.iter().filter(|named| team.is_old(&named.ciphertext)) {
        let purpose = || Purpose::TeamSecret { name, origins: allowed_origins.as_deref() };
        secrets.load_data_key(&mut tx, team.team_id, ciphertext).await?;
        let value = Zeroizing::new(secrets.open_text(team.team_id, purpose(), ciphertext)?);
        let ciphertext = key.seal_text(team.team_id, purpose(), &value)?;
        write_ciphertext(&mut tx, team.team_id, name, &ciphertext).await?;
        replaced += 1;
    }
    tx.commit().await?;
    Ok(replaced)
}

async fn replace_headers(
    pool: &PgPool,
    secrets: &Secrets,
    team: &Newest,
    now: DateTime<Utc>,
) -> Result<u64, SecretError> {
    let (mut replaced, mut after) = (0, 0);
    loop {
        let found = list_sealed_actions(&mut *pool.acquire().await?, team.team_id, after).await?;
        let Some(last) = found.last() else { return Ok(replaced) };
        after = last.id;
        let mut opened = Vec::new();
        for Sealed { id, action } in found.iter().filter(|sealed| sealed.is_old(team)) {
            opened.push((*id, action, secrets.open_action(pool, team.team_id, action).await?.into_owned()));
        }
        let mut tx = db::begin_transaction(pool).await?;
        for (id, before, mut action) in opened {
            secrets.seal_action(&mut tx, team.team_id, &mut action, None, now).await?;
            replaced += write_action(&mut tx, id, before, &action).await?;
        }
        tx.commit().await?;
    }
}

/// A workflow with encrypted header values.
struct Sealed {
    id: i64,
    action: Value,
}

impl Sealed {
    fn is_old(&self, team: &Newest) -> bool {
        let headers = self.action.get("headers").and_then(Value::as_object);
        headers.is_some_and(|all| all.values().filter_map(sealed_text).any(|ciphertext| team.is_old(ciphertext)))
    }
}

/// A named secret of a team.
struct Named {
    name: String,
    ciphertext: String,
    allowed_origins: Option<Vec<String>>,
}

async fn list_newest_data_keys(db: &mut PgConnection) -> sqlx::Result<Vec<Newest>> {
    sqlx::query_as!(
        Newest,
        r#"
        -- list the newest data key of each team
        SELECT team_id, max(version) AS "version!" FROM team_data_keys GROUP BY team_id ORDER BY team_id
        "#
    )
    .fetch_all(db)
    .await
}

/// Returns the current and the previous one.
async fn lock_signing_secrets(tx: &mut PgConnection, team: i64) -> sqlx::Result<[Option<String>; 2]> {
    let row = sqlx::query!(
        r#"
        -- lock the signing secrets of a team
        SELECT signing_secret, previous_signing_secret FROM teams WHERE id = $1 FOR NO KEY UPDATE
        "#,
        team,
    )
    .fetch_one(tx)
    .await?;
    Ok([Some(row.signing_secret), row.previous_signing_secret])
}

async fn list_ciphertexts(db: &mut PgConnection, team: i64) -> sqlx::Result<Vec<Named>> {
    sqlx::query_as!(
        Named,
        r#"
        -- list the named secrets of a team as they are stored
        SELECT name, ciphertext, allowed_origins FROM team_secrets WHERE team_id = $1
        "#,
        team,
    )
    .fetch_all(db)
    .await
}

async fn write_ciphertext(tx: &mut PgConnection, team: i64, name: &str, ciphertext: &str) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- write another ciphertext of the same value of a named secret
        UPDATE team_secrets SET ciphertext = $3 WHERE team_id = $1 AND name = $2
        "#,
        team,
        name,
        ciphertext,
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn list_sealed_actions(db: &mut PgConnection, team: i64, after: i64) -> sqlx::Result<Vec<Sealed>> {
    sqlx::query_as!(
        Sealed,
        r#"
        -- list workflows of a team with encrypted header values
        SELECT id, action FROM workflows
         WHERE team_id = $1 AND id > $2 AND jsonb_path_exists(action, '$.headers.*.sealed')
         ORDER BY id
         LIMIT $3
        "#,
        team,
        after,
        WRITTEN_AT_ONCE,
    )
    .fetch_all(db)
    .await
}
