//! Step 7 of 7: creates a freeze, and lifts one.

use chrono::{DateTime, Utc};
use db::PgConnection;
use serde_json::json;
use uuid::Uuid;
use workflows::audit::{Edit, Entry, record_entry};

/// How many freezes of a team, or of all teams, may be open: each decision of the team reads them.
const MOST_OPEN: i64 = 10;

/// A freeze.
#[derive(Clone, Debug)]
pub struct Freeze {
    /// The id.
    pub id: Uuid,
    /// The team; `None`: all teams.
    pub team_id: Option<i64>,
    /// Why, for people.
    pub reason: String,
    /// From when it is in force.
    pub starts_on: DateTime<Utc>,
    /// Until when, exclusive; `None`: until a caller lifts it.
    pub ends_on: Option<DateTime<Utc>>,
    /// Who requested it.
    pub actor: String,
    /// The name of the key.
    pub actor_name: Option<String>,
    /// When it was requested.
    pub created_on: DateTime<Utc>,
    /// Who ended it early.
    pub lifted_by: Option<String>,
    /// When it was ended early.
    pub lifted_on: Option<DateTime<Utc>>,
}

/// What a freeze has to be.
#[derive(Clone, Debug)]
pub struct Request {
    /// The team; `None`: all teams.
    pub team_id: Option<i64>,
    /// Why, for people.
    pub reason: String,
    /// From when it is in force; `None`: from now on.
    pub from: Option<DateTime<Utc>>,
    /// Until when; `None`: until a caller lifts it.
    pub until: Option<DateTime<Utc>>,
}

/// What a request has created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// This freeze.
    Freeze(Uuid),
    /// None, because so many freezes are open.
    TooMany(i64),
}

/// Whether a freeze was lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifted {
    /// It ends now, or never begins.
    Now,
    /// It had ended.
    Before,
}

/// Creates a freeze, and records it in the audit log; or says why not, then the caller rolls back.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn create_freeze(tx: &mut PgConnection, request: &Request, edit: &Edit) -> sqlx::Result<Created> {
    let id = workflows::id::make_id(edit.now);
    insert_freeze(tx, id, request, edit).await?;
    if count_open(tx, request.team_id, edit.now).await? > MOST_OPEN {
        return Ok(Created::TooMany(MOST_OPEN));
    }
    let after = json!({"reason": request.reason, "from": request.from.unwrap_or(edit.now), "until": request.until});
    let entry = Entry {
        verb: "freeze",
        subject: format!("freeze:{id}"),
        team_id: request.team_id,
        before: None,
        after: Some(after),
    };
    record_entry(tx, edit, entry).await?;
    Ok(Created::Freeze(id))
}

/// Locks a freeze that exists until the transaction ends.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn lock_freeze(tx: &mut PgConnection, id: Uuid) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- lock a freeze
        SELECT id FROM freezes WHERE id = $1 FOR NO KEY UPDATE
        "#,
        id,
    )
    .fetch_optional(tx)
    .await
    .map(drop)
}

/// Ends a freeze now. The decisions that it has made stay.
///
/// The time of the edit is read after [`lock_freeze`]: until the commit, fires are decided by the freeze, so its end must
/// not lie before them.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn lift_freeze(tx: &mut PgConnection, freeze: &Freeze, edit: &Edit) -> sqlx::Result<Lifted> {
    let lifted = sqlx::query!(
        r#"
        -- lift a freeze: one that has not begun never begins
        UPDATE freezes
           SET ends_on = GREATEST(starts_on, $2), lifted_on = $2, lifted_by = $3
         WHERE id = $1 AND ends_on > $2 AND lifted_on IS NULL
        "#,
        freeze.id,
        edit.now,
        edit.actor,
    )
    .execute(&mut *tx)
    .await?;
    if lifted.rows_affected() == 0 {
        return Ok(Lifted::Before);
    }
    let subject = format!("freeze:{}", freeze.id);
    let before = Some(json!({"reason": freeze.reason, "from": freeze.starts_on, "until": freeze.ends_on}));
    let entry = Entry { verb: "lift", subject, team_id: freeze.team_id, before, after: None };
    record_entry(tx, edit, entry).await?;
    Ok(Lifted::Now)
}

async fn count_open(tx: &mut PgConnection, team_id: Option<i64>, now: DateTime<Utc>) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- count open freezes: those that are in force, and those that have not begun
        SELECT count(*) AS "count!" FROM freezes
         WHERE team_id IS NOT DISTINCT FROM $1 AND ends_on > $2 AND lifted_on IS NULL
        "#,
        team_id,
        now,
    )
    .fetch_one(tx)
    .await
}

async fn insert_freeze(tx: &mut PgConnection, id: Uuid, request: &Request, edit: &Edit) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- insert a freeze
        INSERT INTO freezes (id, team_id, reason, starts_on, ends_on, actor, actor_name, created_on)
        VALUES ($1, $2, $3, COALESCE($4::timestamptz, $8), COALESCE($5::timestamptz, 'infinity'), $6, $7, $8)
        "#,
        id,
        request.team_id,
        request.reason,
        request.from,
        request.until,
        edit.actor,
        edit.actor_name,
        edit.now,
    )
    .execute(tx)
    .await
    .map(drop)
}
