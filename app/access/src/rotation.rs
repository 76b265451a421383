//! Step 1 of 7: a key is rotated by its owner, without an admin.
//!
//! The successor has the same kind, team, role, scopes, networks, name and end, so that no owner postpones the end that an
//! admin has set. The key itself expires after the overlap, and is not rotated again: a client that finds it gets no new one.

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use serde_json::json;
use uuid::Uuid;
use workflows::audit::{self, Edit, Entry};

use crate::key::Key;
use crate::keys::{Secret, create_restricted_key, find_key};
use crate::restrictions::Restrictions;

/// The longest time for which a key and its successor are both accepted, in seconds.
pub const MOST_OVERLAP_SECS: u32 = 7 * 24 * 60 * 60;
/// A key that is younger is not rotated, so that no caller fills the table.
pub const LEAST_AGE_SECS: u32 = 60;

/// The result of a rotation.
pub enum RotateOutcome {
    /// The successor, and its text.
    Rotated(Box<Key>, Secret),
    /// The key was revoked or has expired meanwhile.
    Inactive,
    /// The key has a successor.
    AlreadyRotated,
    /// The key is younger than [`LEAST_AGE_SECS`].
    TooYoung,
}

/// Creates the successor of a key, which expires after the overlap.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement.
pub async fn rotate_key(
    tx: &mut PgConnection,
    id: Uuid,
    overlap_secs: u32,
    edit: &Edit,
) -> sqlx::Result<RotateOutcome> {
    lock_key(tx, id).await?;
    let found = find_key(tx, id).await?.filter(|key| key.revoked_on.is_none() && !key.has_expired(edit.now));
    let Some(key) = found else { return Ok(RotateOutcome::Inactive) };
    if key.rotated_into.is_some() {
        return Ok(RotateOutcome::AlreadyRotated);
    }
    if edit.now - key.created_on < TimeDelta::seconds(LEAST_AGE_SECS.into()) {
        return Ok(RotateOutcome::TooYoung);
    }
    let restrictions = restrictions_of_successor(&key);
    let (successor, secret) = create_restricted_key(tx, key.holder(), &key.name, &restrictions, edit).await?;
    let overlap_ends = edit.now + TimeDelta::seconds(overlap_secs.into());
    let expires_on = key.expires_on.map_or(overlap_ends, |expires_on| expires_on.min(overlap_ends));
    end_key(tx, id, successor.id, expires_on).await?;
    let entry = Entry {
        verb: "rotate",
        subject: format!("key:{id}"),
        team_id: key.team_id,
        before: Some(json!({ "expires_on": key.expires_on, "rotated_into": null })),
        after: Some(json!({ "expires_on": expires_on, "rotated_into": successor.id })),
    };
    audit::record_entry(tx, edit, entry).await?;
    Ok(RotateOutcome::Rotated(Box::new(successor), secret))
}

fn restrictions_of_successor(key: &Key) -> Restrictions {
    Restrictions {
        scopes: (key.scopes != key.holder().scopes()).then(|| key.scopes.iter().collect()),
        expires_on: key.expires_on,
        allowed_cidrs: key.allowed_cidrs.clone(),
    }
}

async fn lock_key(tx: &mut PgConnection, id: Uuid) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- lock a key: of two rotations at once, the second sees the successor of the first
        SELECT id FROM api_keys WHERE id = $1 FOR NO KEY UPDATE
        "#,
        id,
    )
    .fetch_optional(tx)
    .await
    .map(drop)
}

async fn end_key(tx: &mut PgConnection, id: Uuid, successor: Uuid, expires_on: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- end a rotated key
        UPDATE api_keys SET expires_on = $2, rotated_into = $3 WHERE id = $1
        "#,
        id,
        expires_on,
        successor,
    )
    .execute(tx)
    .await
    .map(drop)
}
