//! Step 1 of 7: teams, which own workflows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use db::PgConnection;
use serde_json::json;
use workflows::audit::{self, Edit, Entry};
use workflows::keyset::KeysetPage;
use workflows::secrets::{SecretError, Secrets};

use crate::keys::Secret;

/// A team.
#[derive(Clone, Debug)]
pub struct Team {
    /// The id.
    pub id: i64,
    /// Unique name.
    pub name: String,
    /// When it was created.
    pub created_on: DateTime<Utc>,
}

/// Creates a team; the second value is its signing secret, shown once.
///
/// # Errors
/// Fails if the database refuses the statement; a name that is taken violates `teams_name_key`.
pub async fn create_team(
    tx: &mut PgConnection,
    name: &str,
    secrets: &Secrets,
    edit: &Edit,
) -> Result<(Team, Secret), SecretError> {
    let secret = Secret(format!("whsec_{}", STANDARD.encode(rand::random::<[u8; 32]>())));
    // The ciphertext names the team, whose id is not known yet.
    let first = if secrets.encrypts() { "" } else { secret.reveal_text() };
    let id = sqlx::query_scalar!(
        r#"
        -- create a team
        INSERT INTO teams (name, signing_secret, created_on) VALUES ($1, $2, $3) RETURNING id
        "#,
        name,
        first,
        edit.now,
    )
    .fetch_one(&mut *tx)
    .await?;
    if secrets.encrypts() {
        let stored = secrets.seal_signing_secret(tx, id, secret.reveal_text(), edit.now).await?;
        write_signing_secret(tx, id, &stored).await?;
    }
    let after = Some(json!({ "name": name }));
    let entry = Entry { verb: "create", subject: format!("team:{id}"), team_id: Some(id), before: None, after };
    audit::record_entry(tx, edit, entry).await?;
    Ok((Team { id, name: name.to_owned(), created_on: edit.now }, secret))
}

/// Lists teams in the order of their ids: these, or all.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_teams(
    db: &mut PgConnection,
    own: Option<&[i64]>,
    after: Option<i64>,
    limit: i64,
) -> sqlx::Result<KeysetPage<Team, i64>> {
    let rows = sqlx::query_as!(
        Team,
        r#"
        -- list teams by key
        SELECT id, name, created_on
          FROM teams
         WHERE id > $1 AND ($2::bigint[] IS NULL OR id = ANY($2))
         ORDER BY id
         LIMIT $3
        "#,
        after.unwrap_or(0),
        own,
        limit + 1,
    )
    .fetch_all(db)
    .await?;
    Ok(KeysetPage::of_rows(rows, limit, |team: &Team| team.id))
}

/// Renames a team; `None`: there is no such team.
///
/// # Errors
/// Fails if the database refuses the statement; a name that is taken violates `teams_name_key`.
pub async fn rename_team(tx: &mut PgConnection, id: i64, name: &str, edit: &Edit) -> sqlx::Result<Option<Team>> {
    let Some(before) = lock_team(tx, id).await? else { return Ok(None) };
    if before.name != name {
        write_name(tx, id, name).await?;
        let entry = Entry {
            verb: "update",
            subject: format!("team:{id}"),
            team_id: Some(id),
            before: Some(json!({ "name": before.name })),
            after: Some(json!({ "name": name })),
        };
        audit::record_entry(tx, edit, entry).await?;
    }
    Ok(Some(Team { name: name.to_owned(), ..before }))
}

/// What became of a request to delete a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeamDeletion {
    /// It is deleted, with its keys, secrets, limits, freezes and bulk operations.
    Deleted,
    /// There is no such team.
    NotFound,
    /// It has workflows, archived ones included.
    HasWorkflows,
}

/// Deletes a team that has no workflow. Its keys open nothing any more, on other instances within five seconds.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn delete_team(tx: &mut PgConnection, id: i64, edit: &Edit) -> sqlx::Result<TeamDeletion> {
    let Some(before) = lock_team_alone(tx, id).await? else { return Ok(TeamDeletion::NotFound) };
    if !delete_empty_team(tx, id).await? {
        return Ok(TeamDeletion::HasWorkflows);
    }
    let entry = Entry {
        verb: "delete",
        subject: format!("team:{id}"),
        team_id: Some(id),
        before: Some(json!({ "name": before.name })),
        after: None,
    };
    audit::record_entry(tx, edit, entry).await?;
    Ok(TeamDeletion::Deleted)
}

async fn lock_team_alone(tx: &mut PgConnection, id: i64) -> sqlx::Result<Option<Team>> {
    sqlx::query_as!(
        Team,
        r#"
        -- lock a team: no workflow of it can be created until this transaction ends
        SELECT id, name, created_on FROM teams WHERE id = $1 FOR UPDATE
        "#,
        id,
    )
    .fetch_optional(tx)
    .await
}

/// Returns whether it is deleted: a team that has workflows is not.
async fn delete_empty_team(tx: &mut PgConnection, id: i64) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"
        -- delete a team that has no workflow; the owner of the tables does it
        SELECT delete_empty_team($1) AS "is_deleted!"
        "#,
        id,
    )
    .fetch_one(tx)
    .await
}

/// Locks a team until the transaction ends, so that edits of it come one after the other; `None`: there is no such team.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn lock_team(tx: &mut PgConnection, id: i64) -> sqlx::Result<Option<Team>> {
    sqlx::query_as!(
        Team,
        r#"
        -- lock a team; fires and edits of its workflows go on
        SELECT id, name, created_on FROM teams WHERE id = $1 FOR NO KEY UPDATE
        "#,
        id,
    )
    .fetch_optional(tx)
    .await
}

async fn write_name(tx: &mut PgConnection, id: i64, name: &str) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- rename a team
        UPDATE teams SET name = $2 WHERE id = $1
        "#,
        id,
        name,
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn write_signing_secret(tx: &mut PgConnection, team: i64, stored: &str) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- write the signing secret of a new team
        UPDATE teams SET signing_secret = $2 WHERE id = $1
        "#,
        team,
        stored,
    )
    .execute(tx)
    .await
    .map(drop)
}
