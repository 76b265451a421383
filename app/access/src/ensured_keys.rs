//! Step 1 of 7: a key whose text comes from outside, so that a deployment can bootstrap: its secret store is the origin.

use db::PgConnection;
use thiserror::Error;
use workflows::audit::Edit;

use crate::key::{Holder, Key};
use crate::key_text::KeyText;
use crate::keys::{NewKey, find_by_prefix, insert_key, matches_digest};
use crate::restrictions::Restrictions;
use crate::rights::Kind;

/// The result of [`ensure_key`].
#[derive(Debug)]
pub enum EnsureOutcome {
    /// The key was created.
    Created(Box<Key>),
    /// The key existed.
    Existed(Box<Key>),
    /// The key existed, and was revoked or has expired: no call makes it active again.
    Ended(Box<Key>, EnsureRefusal),
    /// The key cannot be used.
    Refused(EnsureRefusal),
}

/// Why a key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EnsureRefusal {
    /// It does not have the form of a key, or its checksum is wrong.
    #[error("it is no key, or a character of it is wrong: create one with `cronbox-app keys generate`")]
    NoKey,
    /// It has the form of version 0.1, and no row.
    #[error("a key of the form cb_.. cannot be created any more: create one with `cronbox-app keys generate`")]
    OldForm,
    /// Its secret has few different characters.
    #[error("its secret is not random: create a key with `cronbox-app keys generate`")]
    Weak,
    /// Its text says another kind.
    #[error("it is a key of another kind: cba_ = admin, cbt_ = team, cbs_ = scheduler")]
    OtherKind,
    /// A key with the same prefix has another secret.
    #[error("another key has the same prefix: create a new one with `cronbox-app keys generate`")]
    OtherSecret,
    /// It was revoked.
    #[error("it was revoked: create a new one with `cronbox-app keys generate`")]
    Revoked,
    /// It has expired.
    #[error("it has expired: create a new one with `cronbox-app keys generate`")]
    Expired,
    /// It exists with another kind, team, role, other scopes or networks.
    #[error("it exists with another kind, team, role, other scopes or other networks: name those, or create a new key")]
    OtherRights,
}

/// Creates the key `presented`, unless it exists. Of two calls at once, one creates it.
///
/// # Errors
/// Fails if the database refuses the statement; an unknown team violates `api_keys_team_id_fkey`.
pub async fn ensure_key(
    tx: &mut PgConnection,
    presented: &str,
    holder: Holder,
    name: &str,
    restrictions: &Restrictions,
    edit: &Edit,
) -> sqlx::Result<EnsureOutcome> {
    let Some(text) = KeyText::parse(presented) else { return Ok(EnsureOutcome::Refused(EnsureRefusal::NoKey)) };
    if let Some(refusal) = refuse_text(&text, holder.kind()) {
        return Ok(EnsureOutcome::Refused(refusal));
    }
    if text.kind().is_some()
        && let Some(key) = insert_key(tx, NewKey { holder, name, restrictions, text }, edit).await?
    {
        return Ok(EnsureOutcome::Created(Box::new(key)));
    }
    let Some((key, _, hash)) = find_by_prefix(tx, text.prefix()).await? else {
        return Ok(EnsureOutcome::Refused(EnsureRefusal::OldForm));
    };
    if !matches_digest(&text, &hash) {
        return Ok(EnsureOutcome::Refused(EnsureRefusal::OtherSecret));
    }
    if let Some(end) = find_end(&key, edit) {
        return Ok(EnsureOutcome::Ended(Box::new(key), end));
    }
    if !has_rights(&key, holder, restrictions) {
        return Ok(EnsureOutcome::Refused(EnsureRefusal::OtherRights));
    }
    Ok(EnsureOutcome::Existed(Box::new(key)))
}

fn refuse_text(text: &KeyText<'_>, kind: Kind) -> Option<EnsureRefusal> {
    match text.kind() {
        Some(said) if said != kind => Some(EnsureRefusal::OtherKind),
        Some(_) if text.is_weak() => Some(EnsureRefusal::Weak),
        Some(_) | None => None,
    }
}

fn find_end(key: &Key, edit: &Edit) -> Option<EnsureRefusal> {
    if key.revoked_on.is_some() {
        return Some(EnsureRefusal::Revoked);
    }
    key.has_expired(edit.now).then_some(EnsureRefusal::Expired)
}

/// The end of a key is not compared: a rotation changes it.
fn has_rights(key: &Key, holder: Holder, restrictions: &Restrictions) -> bool {
    let scopes = match &restrictions.scopes {
        Some(named) => holder.scopes().limited_to(named.iter().copied()),
        None => holder.scopes(),
    };
    key.holder() == holder && key.scopes == scopes && key.allowed_cidrs == restrictions.allowed_cidrs
}
