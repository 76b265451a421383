//! Step 1 of 7: teams, which own workflows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use db::PgConnection;
use serde_json::json;
use workflows::audit::{self, Edit, Entry};

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
pub async fn create_team(tx: &mut PgConnection, name: &str, edit: &Edit) -> sqlx::Result<(Team, Secret)> {
    let secret = Secret(format!("whsec_{}", STANDARD.encode(rand::random::<[u8; 32]>())));
    let id = sqlx::query_scalar!(
        r#"
        -- create a team
        INSERT INTO teams (name, signing_secret, created_on) VALUES ($1, $2, $3) RETURNING id
        "#,
        name,
        secret.reveal_text(),
        edit.now,
    )
    .fetch_one(&mut *tx)
    .await?;
    let after = Some(json!({ "name": name }));
    let entry = Entry { verb: "create", subject: format!("team:{id}"), team_id: Some(id), before: None, after };
    audit::record_entry(tx, edit, entry).await?;
    Ok((Team { id, name: name.to_owned(), created_on: edit.now }, secret))
}
