//! Steps 1 and 7 of 7: the named secrets of teams, which actions refer to as `${secret:name}`.
//!
//! They are always encrypted. An attempt reads the newest value, so a new value reaches the next attempt of every
//! workflow; only an attempt of an action with a reference reads them.

use std::borrow::Cow;
use std::collections::HashMap;

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use serde_json::{Value, json};

use super::cache::Secrets;
use super::error::SecretError;
use super::purpose::Purpose;
use crate::audit::{self, Edit, Entry};
use crate::definition::field::FieldError;
use crate::definition::redaction::origin_of_action;
use crate::definition::reference::{referenced_names, replace_references};

/// How many secrets a team has at most.
pub const MOST_SECRETS: usize = 200;

/// A secret of a team, without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamSecret {
    /// Unique in its team.
    pub name: String,
    /// Raised by each new value.
    pub version: i32,
    /// The only origins that it is sent to; `None` = every one.
    pub allowed_origins: Option<Vec<String>>,
    /// When it was created.
    pub created_on: DateTime<Utc>,
    /// When its value or its origins last changed.
    pub updated_on: DateTime<Utc>,
}

/// A new value of a secret.
pub struct NewValue<'a> {
    /// The name of the secret.
    pub name: &'a str,
    /// The value.
    pub value: &'a str,
    /// The only origins that it is sent to; empty = every one, `None` = as before.
    pub allowed_origins: Option<&'a [String]>,
}

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// The secret has its first value.
    Created(TeamSecret),
    /// The secret has a new value.
    Rotated(TeamSecret),
    /// The team does not exist.
    NoTeam,
    /// The team has as many secrets as it may.
    TooMany,
}

/// A row of `team_secrets`, for an attempt.
struct Stored {
    name: String,
    ciphertext: String,
    allowed_origins: Option<Vec<String>>,
}

impl Secrets {
    /// Writes the value of a secret. The caller has checked that this instance encrypts.
    ///
    /// # Errors
    /// Fails if the database fails, or if this instance does not have the key of the team.
    pub async fn write_team_secret(
        &self,
        tx: &mut PgConnection,
        team: i64,
        new: NewValue<'_>,
        edit: &Edit,
    ) -> Result<Written, SecretError> {
        if !lock_team(tx, team).await? {
            return Ok(Written::NoTeam);
        }
        let Some(key) = self.newest_data_key(tx, team, edit.now).await? else { return Ok(Written::NoTeam) };
        let before = list_team_secrets(tx, team).await?;
        let existing = before.iter().find(|secret| secret.name == new.name);
        if existing.is_none() && before.len() >= MOST_SECRETS {
            return Ok(Written::TooMany);
        }
        let kept = existing.and_then(|secret| secret.allowed_origins.clone());
        let origins = new.allowed_origins.map_or(kept, |origins| (!origins.is_empty()).then(|| origins.to_vec()));
        let ciphertext =
            key.seal_text(team, Purpose::TeamSecret { name: new.name, origins: origins.as_deref() }, new.value)?;
        let written = upsert_team_secret(tx, team, new.name, &ciphertext, origins.as_deref(), edit.now).await?;
        let verb = if existing.is_some() { "rotate" } else { "create" };
        let state = |secret: &TeamSecret| json!({"version": secret.version, "allowed_origins": secret.allowed_origins});
        let entry = Entry {
            verb,
            subject: audit_subject(team, new.name),
            team_id: Some(team),
            before: existing.map(state),
            after: Some(state(&written)),
        };
        audit::record_entry(tx, edit, entry).await?;
        Ok(if existing.is_some() { Written::Rotated(written) } else { Written::Created(written) })
    }

    /// Returns the action with its references replaced by the newest values.
    ///
    /// # Errors
    /// Fails if a secret does not exist, may not be sent to the action's origin, or cannot be decrypted, or if the
    /// database fails.
    pub async fn resolve_references<'a>(
        &self,
        pool: &PgPool,
        team: i64,
        action: Cow<'a, Value>,
    ) -> Result<Cow<'a, Value>, SecretError> {
        let names: Vec<String> = referenced_names(&action).into_keys().collect();
        if names.is_empty() {
            return Ok(action);
        }
        let origin = origin_of_action(&action).unwrap_or_default();
        let stored = find_team_secrets(&mut *pool.acquire().await?, team, &names).await?;
        let mut values = HashMap::new();
        for name in names {
            let Some(secret) = stored.iter().find(|secret| secret.name == name) else {
                return Err(SecretError::Unknown(name));
            };
            if !secret.may_be_sent_to(&origin) {
                return Err(SecretError::OtherOrigin { name, origin });
            }
            self.load_from_pool(pool, team, &secret.ciphertext).await?;
            let purpose = Purpose::TeamSecret { name: &name, origins: secret.allowed_origins.as_deref() };
            let value = self.open_text(team, purpose, &secret.ciphertext)?;
            values.insert(name, value);
        }
        let mut resolved = action.into_owned();
        replace_references(&mut resolved, &values);
        Ok(Cow::Owned(resolved))
    }
}

impl Stored {
    fn may_be_sent_to(&self, origin: &str) -> bool {
        self.allowed_origins.as_ref().is_none_or(|origins| origins.iter().any(|allowed| allowed == origin))
    }
}

/// Returns the first field of an action that refers to a secret which does not exist, or which may not be sent to the
/// action's origin.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_unresolved(db: &mut PgConnection, team: i64, action: &Value) -> sqlx::Result<Option<FieldError>> {
    let fields = referenced_names(action);
    if fields.is_empty() {
        return Ok(None);
    }
    let origin = origin_of_action(action).unwrap_or_default();
    let names: Vec<String> = fields.keys().cloned().collect();
    let stored = find_team_secrets(db, team, &names).await?;
    let refused = fields.into_iter().find_map(|(name, field)| {
        let error = match stored.iter().find(|secret| secret.name == name) {
            None => SecretError::Unknown(name),
            Some(secret) if !secret.may_be_sent_to(&origin) => {
                SecretError::OtherOrigin { name, origin: origin.clone() }
            }
            Some(_) => return None,
        };
        Some(FieldError::invalid(field, error.to_string()))
    });
    Ok(refused)
}

/// Deletes a secret; false if it does not exist. Runs that refer to it fail from then on.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn delete_team_secret(tx: &mut PgConnection, team: i64, name: &str, edit: &Edit) -> sqlx::Result<bool> {
    if !lock_team(tx, team).await? {
        return Ok(false);
    }
    let done = sqlx::query!(
        r#"
        -- delete a secret of a team
        DELETE FROM team_secrets WHERE team_id = $1 AND name = $2
        "#,
        team,
        name,
    )
    .execute(&mut *tx)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    let subject = audit_subject(team, name);
    let entry = Entry { verb: "delete", subject, team_id: Some(team), before: None, after: None };
    audit::record_entry(tx, edit, entry).await?;
    Ok(true)
}

/// Lists the secrets of a team by name, without their values.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_team_secrets(db: &mut PgConnection, team: i64) -> sqlx::Result<Vec<TeamSecret>> {
    sqlx::query_as!(
        TeamSecret,
        r#"
        -- list the secrets of a team
        SELECT name, version, allowed_origins, created_on, updated_on FROM team_secrets WHERE team_id = $1 ORDER BY name
        "#,
        team,
    )
    .fetch_all(db)
    .await
}

/// Lets one transaction at a time write the secrets of a team: another one would read its origins too early, and so
/// remove a restriction. False if the team does not exist.
pub(super) async fn lock_team(tx: &mut PgConnection, team: i64) -> sqlx::Result<bool> {
    let locked = sqlx::query_scalar!(
        r#"
        -- lock the team whose secrets this transaction writes
        SELECT id FROM teams WHERE id = $1 FOR NO KEY UPDATE
        "#,
        team,
    )
    .fetch_optional(tx)
    .await?;
    Ok(locked.is_some())
}

fn audit_subject(team: i64, name: &str) -> String {
    format!("secret:{name} of team:{team}")
}

async fn upsert_team_secret(
    tx: &mut PgConnection,
    team: i64,
    name: &str,
    ciphertext: &str,
    allowed_origins: Option<&[String]>,
    now: DateTime<Utc>,
) -> sqlx::Result<TeamSecret> {
    sqlx::query_as!(
        TeamSecret,
        r#"
        -- write a secret of a team
        INSERT INTO team_secrets AS s (team_id, name, ciphertext, allowed_origins, version, created_on, updated_on)
        VALUES ($1, $2, $3, $4, 1, $5, $5)
        ON CONFLICT (team_id, name) DO UPDATE
           SET ciphertext = excluded.ciphertext, allowed_origins = excluded.allowed_origins,
               version = s.version + 1, updated_on = excluded.updated_on
        RETURNING name, version, allowed_origins, created_on, updated_on
        "#,
        team,
        name,
        ciphertext,
        allowed_origins as Option<&[String]>,
        now,
    )
    .fetch_one(tx)
    .await
}

async fn find_team_secrets(db: &mut PgConnection, team: i64, names: &[String]) -> sqlx::Result<Vec<Stored>> {
    sqlx::query_as!(
        Stored,
        r#"
        -- find secrets of a team
        SELECT name, ciphertext, allowed_origins FROM team_secrets WHERE team_id = $1 AND name = ANY($2)
        "#,
        team,
        names,
    )
    .fetch_all(db)
    .await
}
