//! Steps 1 and 7 of 7: the header values of an action. An edit encrypts them, and an attempt decrypts them.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use serde_json::{Map, Value, json};

use super::purpose::Purpose;
use super::{SecretError, Secrets};
use crate::definition::redaction::origin_of_action;
use crate::definition::sealed::{sealed_text, sealed_value};

impl Secrets {
    /// Encrypts the header values of an action that are not encrypted yet. A value that `before` has, too, keeps its
    /// ciphertext, so that an edit which writes the same values changes nothing.
    ///
    /// # Errors
    /// Fails if the database fails, or if this instance does not have the key of the team.
    pub async fn seal_action(
        &self,
        tx: &mut PgConnection,
        team: i64,
        action: &mut Value,
        before: Option<&Value>,
        now: DateTime<Utc>,
    ) -> Result<(), SecretError> {
        let Some(origin) = origin_of_action(action).filter(|_| self.encrypts()) else { return Ok(()) };
        let Some(headers) = headers_of(action).filter(|headers| headers.values().any(Value::is_string)) else {
            return Ok(());
        };
        let Some(key) = self.newest_data_key(tx, team, now).await? else { return Ok(()) };
        let same_origin = before.filter(|before| origin_of_action(before).as_ref() == Some(&origin));
        let existing = same_origin.and_then(|before| before.get("headers"));
        let mut sealed = Map::new();
        for (name, value) in headers {
            let purpose = Purpose::Header { origin: &origin, name };
            let stored = match value.as_str() {
                None => value.clone(),
                Some(text) => {
                    match self.same_seal(tx, team, purpose, existing.and_then(|all| all.get(name)), text).await? {
                        Some(existing) => existing,
                        None => sealed_value(&key.seal_text(team, purpose, text)?),
                    }
                }
            };
            sealed.insert(name.clone(), stored);
        }
        action["headers"] = Value::Object(sealed);
        Ok(())
    }

    /// Returns the existing header value, if it is a ciphertext of this text.
    async fn same_seal(
        &self,
        tx: &mut PgConnection,
        team: i64,
        purpose: Purpose<'_>,
        existing: Option<&Value>,
        text: &str,
    ) -> Result<Option<Value>, SecretError> {
        let Some((value, ciphertext)) = existing.and_then(|value| Some((value, sealed_text(value)?))) else {
            return Ok(None);
        };
        self.load_data_key(tx, team, ciphertext).await?;
        let is_same = self.open_text(team, purpose, ciphertext).is_ok_and(|opened| opened == text);
        Ok(is_same.then(|| value.clone()))
    }

    /// Returns the action with its header values decrypted.
    ///
    /// # Errors
    /// Fails if a value cannot be decrypted, or if the database fails.
    pub async fn open_action<'a>(
        &self,
        pool: &PgPool,
        team: i64,
        action: &'a Value,
    ) -> Result<Cow<'a, Value>, SecretError> {
        let Some(headers) = headers_of(action).filter(|headers| headers.values().any(Value::is_object)) else {
            return Ok(Cow::Borrowed(action));
        };
        let origin = origin_of_action(action).ok_or(SecretError::Damaged(team))?;
        let mut opened = action.clone();
        for (name, value) in headers {
            let Some(ciphertext) = sealed_text(value) else { continue };
            self.load_from_pool(pool, team, ciphertext).await?;
            let purpose = Purpose::Header { origin: &origin, name };
            opened["headers"][name] = json!(self.open_text(team, purpose, ciphertext)?);
        }
        Ok(Cow::Owned(opened))
    }
}

fn headers_of(action: &Value) -> Option<&Map<String, Value>> {
    action.get("headers")?.as_object()
}
