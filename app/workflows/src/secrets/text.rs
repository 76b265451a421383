//! Steps 1 and 7 of 7: encrypts what is stored as text, and encrypts data keys with the current key, while instances run.
//!
//! Each statement changes a row only if it still is what was read, so an edit at the same moment is not lost: it encrypts
//! its values itself.

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use serde_json::Value;

use super::cache::Secrets;
use super::data_keys::StoredKey;
use super::error::SecretError;
use super::stored_text::ciphertext_of;

/// How many workflows a statement reads at most.
const WORKFLOWS_AT_ONCE: i64 = 1_000;
/// How many rows a transaction writes at most. An edit of one of them waits for its end.
pub(super) const WRITTEN_AT_ONCE: i64 = 20;

/// Encrypts with the current key the data keys that another one encrypts; returns their number.
pub(super) async fn rewrap_data_keys(pool: &PgPool, secrets: &Secrets) -> Result<u64, SecretError> {
    let Some(current) = secrets.0.keyring.current() else { return Ok(0) };
    let mut rewrapped = 0;
    loop {
        let mut tx = db::begin_transaction(pool).await?;
        let found = lock_data_keys_of_others(&mut tx, &current.id).await?;
        for stored in &found {
            let data_key = stored.unwrap_by(&secrets.0.keyring)?;
            let wrapped = current.wrap(stored.team_id, stored.version, &data_key)?;
            update_data_key(&mut tx, stored, &current.id, &wrapped).await?;
        }
        tx.commit().await?;
        rewrapped += found.len() as u64;
        if found.is_empty() {
            return Ok(rewrapped);
        }
    }
}

/// Encrypts signing secrets that are text; returns the number of their teams.
pub(super) async fn seal_signing_secrets(
    pool: &PgPool,
    secrets: &Secrets,
    now: DateTime<Utc>,
) -> Result<u64, SecretError> {
    let (mut sealed, mut after) = (0, 0);
    loop {
        let mut tx = db::begin_transaction(pool).await?;
        let teams = lock_teams_with_text(&mut tx, after).await?;
        for team in &teams {
            let mut stored = Vec::new();
            for secret in [Some(&team.secret), team.previous.as_ref()] {
                stored.push(match secret.filter(|secret| ciphertext_of(secret).is_none()) {
                    Some(text) => Some(secrets.seal_signing_secret(&mut tx, team.id, text, now).await?),
                    None => secret.cloned(),
                });
            }
            write_signing_secrets(&mut tx, team.id, &stored).await?;
        }
        tx.commit().await?;
        sealed += teams.len() as u64;
        match teams.last() {
            Some(last) => after = last.id,
            None => return Ok(sealed),
        }
    }
}

/// Encrypts header values that are text; returns the number of their workflows.
pub(super) async fn seal_workflows(pool: &PgPool, secrets: &Secrets, now: DateTime<Utc>) -> Result<u64, SecretError> {
    let (mut sealed, mut after) = (0, Some(0));
    while let Some(from) = after {
        let mut connection = pool.acquire().await?;
        after = end_of_batch(&mut connection, from).await?;
        let found = workflows_with_text(&mut connection, from, after.unwrap_or(i64::MAX)).await?;
        drop(connection);
        for written_at_once in found.chunks(usize::try_from(WRITTEN_AT_ONCE).unwrap_or(1)) {
            sealed += seal_actions(pool, secrets, written_at_once, now).await?;
        }
    }
    Ok(sealed)
}

async fn seal_actions(
    pool: &PgPool,
    secrets: &Secrets,
    found: &[Found],
    now: DateTime<Utc>,
) -> Result<u64, SecretError> {
    let (mut sealed, mut tx) = (0, db::begin_transaction(pool).await?);
    for found in found {
        let mut action = found.action.clone();
        secrets.seal_action(&mut tx, found.team_id, &mut action, None, now).await?;
        sealed += write_action(&mut tx, found.id, &found.action, &action).await?;
    }
    tx.commit().await?;
    Ok(sealed)
}

async fn lock_data_keys_of_others(tx: &mut PgConnection, current: &str) -> sqlx::Result<Vec<StoredKey>> {
    sqlx::query_as!(
        StoredKey,
        r#"
        -- lock data keys that another key encrypts
        SELECT team_id, version, wrapping_key, wrapped, false AS "is_own!"
          FROM team_data_keys
         WHERE wrapping_key <> $1
         ORDER BY team_id, version
         LIMIT $2
           FOR UPDATE
        "#,
        current,
        WRITTEN_AT_ONCE,
    )
    .fetch_all(tx)
    .await
}

async fn update_data_key(
    tx: &mut PgConnection,
    stored: &StoredKey,
    wrapping_key: &str,
    wrapped: &[u8],
) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- encrypt a data key with another key
        UPDATE team_data_keys SET wrapping_key = $3, wrapped = $4 WHERE team_id = $1 AND version = $2
        "#,
        stored.team_id,
        stored.version,
        wrapping_key,
        wrapped,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// A team with a signing secret that is text.
struct Team {
    id: i64,
    secret: String,
    previous: Option<String>,
}

async fn lock_teams_with_text(tx: &mut PgConnection, after: i64) -> sqlx::Result<Vec<Team>> {
    sqlx::query_as!(
        Team,
        r#"
        -- lock teams whose signing secret is stored as text
        SELECT id, signing_secret AS secret, previous_signing_secret AS previous
          FROM teams
         WHERE id > $1 AND (signing_secret NOT LIKE 'sealed:%' OR previous_signing_secret NOT LIKE 'sealed:%')
         ORDER BY id
         LIMIT $2
           FOR NO KEY UPDATE
        "#,
        after,
        WRITTEN_AT_ONCE,
    )
    .fetch_all(tx)
    .await
}

/// Writes the current and the previous one.
pub(super) async fn write_signing_secrets(
    tx: &mut PgConnection,
    team: i64,
    stored: &[Option<String>],
) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- encrypt the signing secrets of a team that this transaction has locked
        UPDATE teams SET signing_secret = COALESCE($2, signing_secret), previous_signing_secret = $3 WHERE id = $1
        "#,
        team,
        stored.first().cloned().flatten(),
        stored.get(1).cloned().flatten(),
    )
    .execute(tx)
    .await
    .map(drop)
}

/// A workflow with header values that are text.
struct Found {
    id: i64,
    team_id: i64,
    action: Value,
}

/// The last workflow of the batch that begins after this one; `None` for the last batch.
async fn end_of_batch(db: &mut PgConnection, after: i64) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the last workflow of a batch
        SELECT id FROM workflows WHERE id > $1 ORDER BY id OFFSET $2 LIMIT 1
        "#,
        after,
        WORKFLOWS_AT_ONCE - 1,
    )
    .fetch_optional(db)
    .await
}

async fn workflows_with_text(db: &mut PgConnection, after: i64, last: i64) -> sqlx::Result<Vec<Found>> {
    sqlx::query_as!(
        Found,
        r#"
        -- workflows of a batch with a header value that is stored as text
        SELECT w.id, w.team_id, w.action
          FROM workflows w
         WHERE w.id > $1 AND w.id <= $2 AND jsonb_typeof(w.action -> 'headers') = 'object'
           AND jsonb_path_exists(w.action, '$.headers.* ? (@.type() == "string")')
         ORDER BY w.id
        "#,
        after,
        last,
    )
    .fetch_all(db)
    .await
}

pub(super) async fn write_action(tx: &mut PgConnection, id: i64, before: &Value, action: &Value) -> sqlx::Result<u64> {
    let done = sqlx::query!(
        r#"
        -- encrypt the header values of a workflow, unless an edit has changed its action meanwhile
        UPDATE workflows SET action = $2 WHERE id = $1 AND action = $3
        "#,
        id,
        action,
        before,
    )
    .execute(tx)
    .await?;
    Ok(done.rows_affected())
}
