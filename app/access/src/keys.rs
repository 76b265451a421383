//! Step 1 of 7: the keys of the API.
//!
//! The text of a key (`key_text.rs`) has a public prefix, which finds the row, and the SHA-256 of the complete text must
//! match. The secret has 256 random bits, so a fast hash suffices. It is shown once and never stored.

use std::collections::HashSet;

use db::PgConnection;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;
use workflows::audit::{self, Edit, Entry};
use workflows::keyset::KeysetPage;

use crate::key::KeyRow;
use crate::key_text::{KeyText, make_key_text};
use crate::limits::TeamLimits;
use crate::restrictions::Restrictions;

pub use crate::key::{Holder, Key};
pub use crate::rights::{Kind, Role};

/// A key to insert.
pub(crate) struct NewKey<'a> {
    pub(crate) holder: Holder,
    pub(crate) name: &'a str,
    pub(crate) restrictions: &'a Restrictions,
    pub(crate) text: KeyText<'a>,
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

/// Creates a key without restrictions; the second value is its text, which is never stored.
///
/// # Errors
/// Fails if the database refuses the statement; an unknown team violates `api_keys_team_id_fkey`.
pub async fn create_key(tx: &mut PgConnection, holder: Holder, name: &str, edit: &Edit) -> sqlx::Result<(Key, Secret)> {
    create_restricted_key(tx, holder, name, &Restrictions::default(), edit).await
}

/// Creates a key; the second value is its text, which is never stored.
///
/// # Errors
/// Fails if the database refuses the statement; an unknown team violates `api_keys_team_id_fkey`.
pub async fn create_restricted_key(
    tx: &mut PgConnection,
    holder: Holder,
    name: &str,
    restrictions: &Restrictions,
    edit: &Edit,
) -> sqlx::Result<(Key, Secret)> {
    loop {
        let secret = Secret(make_key_text(holder.kind()));
        // A text that was made here is parsed. The prefix of another key is as good as impossible.
        let Some(text) = KeyText::parse(secret.reveal_text()) else { continue };
        if let Some(key) = insert_key(tx, NewKey { holder, name, restrictions, text }, edit).await? {
            return Ok((key, secret));
        }
    }
}

/// Inserts a key and its audit entry; `None` if a key has the same prefix, also one of a transaction that has just ended.
///
/// # Errors
/// Fails if the database refuses the statement; an unknown team violates `api_keys_team_id_fkey`.
pub(crate) async fn insert_key(tx: &mut PgConnection, new: NewKey<'_>, edit: &Edit) -> sqlx::Result<Option<Key>> {
    let (kind, team_id, role) = new.holder.columns();
    let hash = digest(new.text.text());
    let Restrictions { scopes, expires_on, allowed_cidrs } = new.restrictions;
    let scopes: Option<Vec<String>> =
        scopes.as_ref().map(|all| all.iter().map(|one| one.as_str().to_owned()).collect());
    let cidrs: Option<Vec<String>> = allowed_cidrs.as_ref().map(|all| all.iter().map(ToString::to_string).collect());
    let row = sqlx::query_as!(
        KeyRow,
        r#"
        -- insert a key: it waits for another transaction that inserts the same one
        INSERT INTO api_keys (id, prefix, hash, kind, team_id, role, name, created_on, scopes, expires_on, allowed_cidrs)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::text[], $10, $11::text[]::cidr[])
        ON CONFLICT (prefix) DO NOTHING
        RETURNING id, prefix, kind AS "kind: Kind", team_id, role AS "role: Role", scopes, name, created_on, expires_on,
                  allowed_cidrs::text[] AS "allowed_cidrs", last_used_on, host(last_used_from) AS "last_used_from",
                  revoked_on, rotated_into
        "#,
        workflows::id::make_id(edit.now),
        new.text.prefix(),
        hash.as_slice(),
        kind as Kind,
        team_id,
        role as Option<Role>,
        new.name,
        edit.now,
        scopes.as_deref(),
        *expires_on,
        cidrs.as_deref(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(key) = row.map(Key::from) else { return Ok(None) };
    record_change(tx, &key, "create", key.for_audit(), edit).await?;
    Ok(Some(key))
}

/// Revokes a key; a second call changes nothing. Returns `None` if it does not exist.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn revoke_key(tx: &mut PgConnection, id: Uuid, edit: &Edit) -> sqlx::Result<Option<Key>> {
    let key = sqlx::query_as!(
        KeyRow,
        r#"
        -- revoke a key: a row comes back only if this statement revoked it
        UPDATE api_keys SET revoked_on = $2 WHERE id = $1 AND revoked_on IS NULL
        RETURNING id, prefix, kind AS "kind: Kind", team_id, role AS "role: Role", scopes, name, created_on, expires_on,
                  allowed_cidrs::text[] AS "allowed_cidrs", last_used_on, host(last_used_from) AS "last_used_from",
                  revoked_on, rotated_into
        "#,
        id,
        edit.now,
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(key) = key.map(Key::from) else { return find_key(tx, id).await };
    record_change(tx, &key, "revoke", json!({ "revoked_on": edit.now }), edit).await?;
    Ok(Some(key))
}

pub(crate) async fn record_change(
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

/// Returns a key.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_key(db: &mut PgConnection, id: Uuid) -> sqlx::Result<Option<Key>> {
    sqlx::query_as!(
        KeyRow,
        r#"
        -- find a key by id
        SELECT id, prefix, kind AS "kind: Kind", team_id, role AS "role: Role", scopes, name, created_on, expires_on,
               allowed_cidrs::text[] AS "allowed_cidrs", last_used_on, host(last_used_from) AS "last_used_from",
               revoked_on, rotated_into
          FROM api_keys
         WHERE id = $1
        "#,
        id,
    )
    .fetch_optional(db)
    .await
    .map(|row| row.map(Key::from))
}

/// Lists keys in the order of their creation.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_keys(db: &mut PgConnection, after: Option<Uuid>, limit: i64) -> sqlx::Result<KeysetPage<Key, Uuid>> {
    let rows = sqlx::query_as!(
        KeyRow,
        r#"
        -- list keys by key
        SELECT id, prefix, kind AS "kind: Kind", team_id, role AS "role: Role", scopes, name, created_on, expires_on,
               allowed_cidrs::text[] AS "allowed_cidrs", last_used_on, host(last_used_from) AS "last_used_from",
               revoked_on, rotated_into
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
    let keys = rows.into_iter().map(Key::from).collect();
    Ok(KeysetPage::of_rows(keys, limit, |key: &Key| key.id))
}

/// Lists the keys of a team in the order of their creation.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_keys_of_team(db: &mut PgConnection, team_id: i64) -> sqlx::Result<Vec<Key>> {
    let rows = sqlx::query_as!(
        KeyRow,
        r#"
        -- the keys of a team
        SELECT id, prefix, kind AS "kind: Kind", team_id, role AS "role: Role", scopes, name, created_on, expires_on,
               allowed_cidrs::text[] AS "allowed_cidrs", last_used_on, host(last_used_from) AS "last_used_from",
               revoked_on, rotated_into
          FROM api_keys
         WHERE team_id = $1
         ORDER BY id
        "#,
        team_id,
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(Key::from).collect())
}

/// Returns the key that matches a text and is not revoked, if one does, and the limits of its team for requests in
/// flight. It may have expired.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn verify_key(db: &mut PgConnection, presented: &KeyText<'_>) -> sqlx::Result<Option<(Key, TeamLimits)>> {
    let Some((key, limits, hash)) = find_by_prefix(db, presented.prefix()).await? else { return Ok(None) };
    if key.revoked_on.is_some() || !matches_digest(presented, &hash) {
        return Ok(None);
    }
    Ok(Some((key, limits)))
}

/// Returns a key that is not revoked, and the limits of its team for requests in flight. It may have expired.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(crate) async fn find_active_key(db: &mut PgConnection, id: Uuid) -> sqlx::Result<Option<(Key, TeamLimits)>> {
    let Some(key) = find_key(db, id).await?.filter(|key| key.revoked_on.is_none()) else { return Ok(None) };
    let limits = match key.team_id {
        Some(team_id) => limits_of_requests(db, team_id).await?,
        None => TeamLimits::default(),
    };
    Ok(Some((key, limits)))
}

/// The limits of a team for requests in flight.
async fn limits_of_requests(db: &mut PgConnection, team_id: i64) -> sqlx::Result<TeamLimits> {
    let row = sqlx::query!(
        r#"
        -- the limits of a team for requests in flight
        SELECT requests_in_flight, edits_in_flight, lists_in_flight FROM team_limits WHERE team_id = $1
        "#,
        team_id,
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map_or_else(TeamLimits::default, |row| TeamLimits {
        requests_in_flight: row.requests_in_flight,
        edits_in_flight: row.edits_in_flight,
        lists_in_flight: row.lists_in_flight,
        ..TeamLimits::default()
    }))
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

/// Compares in constant time.
pub(crate) fn matches_digest(presented: &KeyText<'_>, hash: &[u8]) -> bool {
    digest(presented.text()).ct_eq(hash).into()
}

/// SHA-256 of a key, by which it is stored.
fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// Returns the key with this prefix, the limits of its team for requests in flight, and its digest.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(crate) async fn find_by_prefix(
    db: &mut PgConnection,
    prefix: &str,
) -> sqlx::Result<Option<(Key, TeamLimits, Vec<u8>)>> {
    let row = sqlx::query!(
        r#"
        -- find a key by its public part
        SELECT k.id, k.prefix, k.hash, k.kind AS "kind: Kind", k.team_id, k.role AS "role: Role", k.scopes, k.name,
               k.created_on, k.expires_on, k.allowed_cidrs::text[] AS "allowed_cidrs", k.last_used_on,
               host(k.last_used_from) AS "last_used_from", k.revoked_on, k.rotated_into,
               l.requests_in_flight AS "requests_in_flight?", l.edits_in_flight AS "edits_in_flight?",
               l.lists_in_flight AS "lists_in_flight?"
          FROM api_keys k LEFT JOIN team_limits l ON l.team_id = k.team_id
         WHERE k.prefix = $1
        "#,
        prefix,
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| {
        let key = KeyRow {
            id: row.id,
            prefix: row.prefix,
            kind: row.kind,
            team_id: row.team_id,
            role: row.role,
            scopes: row.scopes,
            name: row.name,
            created_on: row.created_on,
            expires_on: row.expires_on,
            allowed_cidrs: row.allowed_cidrs,
            last_used_on: row.last_used_on,
            last_used_from: row.last_used_from,
            revoked_on: row.revoked_on,
            rotated_into: row.rotated_into,
        };
        let limits = TeamLimits {
            requests_in_flight: row.requests_in_flight,
            edits_in_flight: row.edits_in_flight,
            lists_in_flight: row.lists_in_flight,
            ..TeamLimits::default()
        };
        (key.into(), limits, row.hash)
    }))
}
