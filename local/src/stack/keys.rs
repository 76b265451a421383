//! The keys of a stack and its team, made once; a stack whose database stays finds them again beside it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use app::audit::Edit;
use app::keys::{self, Holder, Role};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

/// What opens a stack; no `Debug`, they are secrets.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// Everything but `:invoke`
    pub admin: String,
    /// `:invoke` alone: the runner's
    pub scheduler: String,
    /// The team's workflows
    pub editor: String,
    /// The team
    pub team_id: i64,
}

impl Keys {
    /// Makes a team and a key of each kind.
    ///
    /// # Errors
    /// The database's.
    pub async fn create(pool: &PgPool, team: &str, now: DateTime<Utc>) -> Result<Keys> {
        let edit = Edit { actor: "local".to_owned(), now, traceparent: None };
        let mut tx = db::begin(pool).await?;
        let (team, _) = keys::create_team(&mut tx, team, &edit).await?;
        let (_, admin) = keys::create(&mut tx, Holder::Admin, "local admin", &edit).await?;
        let (_, scheduler) = keys::create(&mut tx, Holder::Scheduler, "local runner", &edit).await?;
        let (_, editor) = keys::create(&mut tx, Holder::Team(team.id, Role::Editor), "local editor", &edit).await?;
        tx.commit().await?;
        Ok(Keys {
            admin: admin.reveal().to_owned(),
            scheduler: scheduler.reveal().to_owned(),
            editor: editor.reveal().to_owned(),
            team_id: team.id,
        })
    }

    /// Finds the keys in `path`, or makes them and keeps them there.
    ///
    /// # Errors
    /// The database's, or the file's.
    pub async fn load_or_create(pool: &PgPool, path: &Path, now: DateTime<Utc>) -> Result<Keys> {
        if let Ok(text) = fs::read_to_string(path) {
            return serde_json::from_str(&text).with_context(|| format!("{} cannot be read", path.display()));
        }
        let keys = Keys::create(pool, "demo", now).await?;
        write_secret(path, &serde_json::to_string_pretty(&keys)?)?;
        Ok(keys)
    }
}

/// Writes a file that only its owner can read; it is whole or not there.
///
/// # Errors
/// The file's.
pub fn write_secret(path: &Path, text: &str) -> Result<()> {
    let context = || format!("cannot write {}", path.display());
    let draft = path.with_extension("draft");
    // A draft left by a crash would keep its mode.
    if draft.exists() {
        fs::remove_file(&draft).with_context(context)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).with_context(context)?;
    file.write_all(text.as_bytes()).with_context(context)?;
    fs::rename(&draft, path).with_context(context)
}
