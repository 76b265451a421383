//! Step 1 of 7: the keys of the API.
//!
//! A key is `cb_<prefix>_<secret>`: the prefix finds the row, and the SHA-256 of the complete key must match. The
//! secret has 256 random bits, so a fast hash suffices. It is shown once and never stored.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use db::PgConnection;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;
use workflows::audit::{self, Edit, Entry};
use workflows::keyset::KeysetPage;

use crate::limits::TeamLimits;

/// What a key gives access to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Everything except `:invoke`.
    Admin,
    /// The workflows and runs of one team.
    Team,
    /// Only `:invoke`.
    Scheduler,
}

/// The permissions of a team key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read.
    Viewer,
    /// Read and write.
    Editor,
}

/// A key without its secret.
#[derive(Clone, Debug)]
pub struct Key {
    /// The id.
    pub id: Uuid,
    /// The public part.
    pub prefix: String,
    /// What it gives access to.
    pub kind: Kind,
    /// The team of a team key.
    pub team_id: Option<i64>,
    /// The role of a team key.
    pub role: Option<Role>,
    /// What it is for.
    pub name: String,
    /// When it was created.
    pub created_on: DateTime<Utc>,
    /// When it was last used.
    pub last_used_on: Option<DateTime<Utc>>,
    /// When it was revoked; it is refused since then.
    pub revoked_on: Option<DateTime<Utc>>,
}

/// The owner of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// An operator.
    Admin,
    /// A member of a team.
    Team(i64, Role),
    /// The runner.
    Scheduler,
}

impl Holder {
    fn columns(self) -> (Kind, Option<i64>, Option<Role>) {
        match self {
            Holder::Admin => (Kind::Admin, None, None),
            Holder::Team(team_id, role) => (Kind::Team, Some(team_id), Some(role)),
            Holder::Scheduler => (Kind::Scheduler, None, None),
        }
    }
}

/// A key's text; only `reveal_text` returns it.
#[derive(Clone)]
pub struct Secret(pub(crate) String);

impl Secret {
    /// Returns the text, to be shown once.
    #[must_use]
    pub fn reveal_text(&self) -> &str {
        &self.0
    }
}

/// Creates a key; the second value is its text, which is never stored.
///
/// # Errors
/// Fails if the database refuses the statement; an unknown team violates `api_keys_team_id_fkey`.
pub async fn create_key(tx: &mut PgConnection, holder: Holder, name: &str, edit: &Edit) -> sqlx::Result<(Key, Secret)> {
    let prefix = const_hex::encode(rand::random::<[u8; 6]>());
    let secret = Secret(format!("cb_{prefix}_{}", URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())));
    let (kind, team_id, role) = holder.columns();
    let id = workflows::id::make_id(edit.now);
    let hash = digest(secret.reveal_text());
    sqlx::query!(
        r#"
        -- create a key
        INSERT INTO api_keys (id, prefix, hash, kind, team_id, role, name, created_on)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        "#,
        id,
        prefix,
        hash.as_slice(),
        kind as Kind,
        team_id,
        role as Option<Role>,
        name,
        edit.now,
    )
    .execute(&mut *tx)
    .await?;
    let key = Key {
        id,
        prefix,
        kind,
        team_id,
        role,
        name: name.to_owned(),
        created_on: edit.now,
        last_used_on: None,
        revoked_on: None,
    };
    let after = json!({ "prefix": key.prefix, "kind": kind, "team_id": team_id, "role": role, "name": name });
    record_change(tx, &key, "create", after, edit).await?;
    Ok((key, secret))
}

/// Revokes a key; a second call changes nothing. Returns `None` if it does not exist.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn revoke_key(tx: &mut PgConnection, id: Uuid, edit: &Edit) -> sqlx::Result<Option<Key>> {
    let key = sqlx::query_as!(
        Key,
        r#"
        -- revoke a key: a row comes back only if this statement revoked it
        UPDATE api_keys SET revoked_on = $2 WHERE id = $1 AND revoked_on IS NULL
        RETURNING id, prefix, kind AS "kind: Kind", team_id, role AS "role: Role", name, created_on, last_used_on,
                  revoked_on
        "#,
        id,
        edit.now,
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(key) = key else { return find(tx, id).await };
    record_change(tx, &key, "revoke", json!({ "revoked_on": edit.now }), edit).await?;
    Ok(Some(key))
}

async fn record_change(
    tx: &mut PgConnection,
    key: &Key,
    verb: &str,
    after: serde_json::Value,
    edit: &Edit,
) -> sqlx::Result<()> {
    let subject = format!("key:{}", key.id);
    let entry = Entry { verb, subject, team_id: key.team_id, before: None, after: Some(after) };
    audit::record_entry(tx, edit, entry).await
}

async fn find(db: &mut PgConnection, id: Uuid) -> sqlx::Result<Option<Key>> {
    sqlx::query_as!(
        Key,
        r#"
        -- find a key by id
        SELECT id, prefix, kind AS "kind: Kind", team_id, role AS "role: Role", name, created_on, last_used_on,
               revoked_on
          FROM api_keys
         WHERE id = $1
        "#,
        id,
    )
    .fetch_optional(db)
    .await
}

/// Lists keys in the order of their creation.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_keys(db: &mut PgConnection, after: Option<Uuid>, limit: i64) -> sqlx::Result<KeysetPage<Key, Uuid>> {
    let rows = sqlx::query_as!(
        Key,
        r#"
        -- list keys by key
        SELECT id, prefix, kind AS "kind: Kind", team_id, role AS "role: Role", name, created_on, last_used_on,
               revoked_on
          FROM api_keys
         WHERE id > $1
         ORDER BY id
         LIMIT $2
        "#,
        after.unwrap_or(Uuid::nil()),
        limit + 1,
    )
    .fetch_all(db)
    .await?;
    Ok(KeysetPage::of_rows(rows, limit, |key| key.id))
}

/// Returns the active key that matches `presented`, if one does, and the limits of its team for requests in flight.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn verify_key(
    db: &mut PgConnection,
    presented: &str,
    now: DateTime<Utc>,
) -> sqlx::Result<Option<(Key, TeamLimits)>> {
    let Some(prefix) = public_part(presented) else { return Ok(None) };
    let Some((key, limits, hash)) = by_prefix(db, prefix).await? else { return Ok(None) };
    if key.revoked_on.is_some() || !bool::from(digest(presented).ct_eq(&hash)) {
        return Ok(None);
    }
    touch(db, key.id, now).await?;
    Ok(Some((key, limits)))
}

/// Lists the digests of all active keys.
pub(crate) async fn list_active_digests(db: &mut PgConnection) -> sqlx::Result<HashSet<[u8; 32]>> {
    let digests = sqlx::query_scalar!(
        r#"
        -- list the digests of active keys
        SELECT hash FROM api_keys WHERE revoked_on IS NULL
        "#,
    )
    .fetch_all(db)
    .await?;
    Ok(digests.into_iter().filter_map(|digest| digest.try_into().ok()).collect())
}

/// SHA-256 of a key, by which it is stored.
fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// Returns the public part of a text that has the form of a key; it may be logged.
#[must_use]
pub fn public_part(presented: &str) -> Option<&str> {
    let (prefix, secret) = presented.strip_prefix("cb_")?.split_once('_')?;
    (prefix.len() == 12 && secret.len() == 43 && presented.is_ascii()).then_some(prefix)
}

async fn by_prefix(db: &mut PgConnection, prefix: &str) -> sqlx::Result<Option<(Key, TeamLimits, Vec<u8>)>> {
    let row = sqlx::query!(
        r#"
        -- find a key by its public part
        SELECT k.id, k.prefix, k.hash, k.kind AS "kind: Kind", k.team_id, k.role AS "role: Role", k.name, k.created_on,
               k.last_used_on, k.revoked_on, l.requests_in_flight AS "requests_in_flight?",
               l.edits_in_flight AS "edits_in_flight?", l.lists_in_flight AS "lists_in_flight?"
          FROM api_keys k LEFT JOIN team_limits l ON l.team_id = k.team_id
         WHERE k.prefix = $1
        "#,
        prefix,
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| {
        let key = Key {
            id: row.id,
            prefix: row.prefix,
            kind: row.kind,
            team_id: row.team_id,
            role: row.role,
            name: row.name,
            created_on: row.created_on,
            last_used_on: row.last_used_on,
            revoked_on: row.revoked_on,
        };
        let limits = TeamLimits {
            requests_in_flight: row.requests_in_flight,
            edits_in_flight: row.edits_in_flight,
            lists_in_flight: row.lists_in_flight,
            ..TeamLimits::default()
        };
        (key, limits, row.hash)
    }))
}

async fn touch(db: &mut PgConnection, id: Uuid, now: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- touch a key: at most once a minute, which is enough to see whether it is in use
        UPDATE api_keys SET last_used_on = $2
         WHERE id = $1 AND (last_used_on IS NULL OR last_used_on < $2::timestamptz - INTERVAL '1 minute')
        "#,
        id,
        now,
    )
    .execute(db)
    .await
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_forms_of_keys_are_refused() {
        let secret = "s".repeat(43);
        assert_eq!(public_part(&format!("cb_0123456789ab_{secret}")), Some("0123456789ab"));
        for wrong in ["", "cb_", "cb_0123456789ab_short", "xx_0123456789ab_", &format!("cb_short_{secret}")] {
            assert_eq!(public_part(wrong), None, "{wrong:?}");
        }
    }
}
