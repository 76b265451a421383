//! The keys of a stack and its team. They are created once; a database that is kept has them in a file beside it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use access::key_text::KeyText;
use access::keys::{Holder, Role, create_key};
use access::teams::create_team;
use anyhow::{Context, Result};
use chrono::{DateTime, Utc};
use db::PgPool;
use serde::{Deserialize, Serialize};
use workflows::audit::Edit;
use workflows::secrets::{Keyring, Secrets};

/// The keys of a stack; no `Debug`, because they are secrets.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// Everything except `:invoke`
    pub admin: String,
    /// Only `:invoke`: the runner's
    pub scheduler: String,
    /// The team's workflows
    pub editor: String,
    /// The team
    pub team_id: i64,
}

impl Keys {
    /// Creates a team, unless it exists, and a key of each kind.
    ///
    /// # Errors
    /// Fails if the database cannot be reached or refuses the statement.
    pub async fn create_for_team(pool: &PgPool, team: &str, secrets: &Secrets, now: DateTime<Utc>) -> Result<Keys> {
        let edit = Edit::without_request("local", now);
        let mut tx = db::begin_transaction(pool).await?;
        let found =
            sqlx::query_scalar("SELECT id FROM teams WHERE name = $1").bind(team).fetch_optional(&mut *tx).await?;
        let team_id = match found {
            Some(id) => id,
            None => create_team(&mut tx, team, secrets, &edit).await?.0.id,
        };
        let (_, admin) = create_key(&mut tx, Holder::Admin, "local admin", &edit).await?;
        let (_, scheduler) = create_key(&mut tx, Holder::Scheduler, "local runner", &edit).await?;
        let (_, editor) = create_key(&mut tx, Holder::Team(team_id, Role::Editor), "local editor", &edit).await?;
        tx.commit().await?;
        Ok(Keys {
            admin: admin.reveal_text().to_owned(),
            scheduler: scheduler.reveal_text().to_owned(),
            editor: editor.reveal_text().to_owned(),
            team_id,
        })
    }

    /// Reads the keys from `path`. If the file is missing or a key is revoked, creates new ones and writes them there.
    ///
    /// # Errors
    /// Fails if the database fails, or if the file cannot be read or written.
    pub async fn load_or_create(pool: &PgPool, path: &Path, secrets: &Secrets, now: DateTime<Utc>) -> Result<Keys> {
        let kept = fs::read_to_string(path).ok().and_then(|text| serde_json::from_str::<Keys>(&text).ok());
        if let Some(keys) = kept
            && keys.are_alive(pool).await?
        {
            return Ok(keys);
        }
        let keys = Keys::create_for_team(pool, "demo", secrets, now).await?;
        write_secret(path, &serde_json::to_string_pretty(&keys)?)?;
        Ok(keys)
    }

    async fn are_alive(&self, pool: &PgPool) -> sqlx::Result<bool> {
        let all = [&self.admin, &self.scheduler, &self.editor];
        let prefixes: Vec<_> =
            all.iter().filter_map(|key| KeyText::parse(key)).map(|key| key.prefix().to_owned()).collect();
        let count = "SELECT count(*) FROM api_keys WHERE prefix = ANY($1) AND revoked_on IS NULL";
        let alive: i64 = sqlx::query_scalar(count).bind(prefixes).fetch_one(pool).await?;
        Ok(usize::try_from(alive) == Ok(all.len()))
    }
}

/// Returns the file of the key that encrypts the secrets of a kept database, beside its file of keys. Creates it, if it is
/// missing.
///
/// # Errors
/// Fails if the file cannot be written.
pub(super) fn create_secrets_key(keys: &Path) -> Result<PathBuf> {
    let path = keys.with_file_name("secrets.key");
    if !path.exists() {
        write_secret(&path, &Keyring::generate("local")?)?;
    }
    Ok(path)
}

/// Writes a file that only its owner can read. The file is complete or does not exist.
///
/// # Errors
/// Fails if the file cannot be read or written.
pub fn write_secret(path: &Path, text: &str) -> Result<()> {
    let context = || format!("cannot write {}", path.display());
    let draft = path.with_extension("draft");
    // A draft that a crash left behind would keep its mode.
    if draft.exists() {
        fs::remove_file(&draft).with_context(context)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).with_context(context)?;
    file.write_all(text.as_bytes()).with_context(context)?;
    fs::rename(&draft, path).with_context(context)
}
