//! Step 4 of 7: drift, for operators: the findings of the sweeps, and requests for a sweep.
//!
//! Only the publisher reaches EventBridge, so it sweeps; the app reads its findings.

use chrono::{DateTime, Utc};
use db::PgConnection;
use serde_json::{Value, json};

use crate::audit::{self, Edit, Entry};

/// A comparison of EventBridge with the database.
#[derive(Debug)]
pub struct Sweep {
    /// The id.
    pub id: i64,
    /// Public prefix of the key that requested it, or `publisher` for a periodic sweep.
    pub requested_by: String,
    /// Whether it may delete many orphans and make many changes.
    pub force: bool,
    /// When it was requested.
    pub requested_on: DateTime<Utc>,
    /// When a publisher claimed it.
    pub started_on: Option<DateTime<Utc>>,
    /// When it finished.
    pub finished_on: Option<DateTime<Utc>>,
    /// Counts of what was found and changed so far.
    pub report: Value,
}

/// A workflow whose schedule differs and is not repaired yet.
#[derive(Debug)]
pub struct Drifted {
    /// The workflow, or one that was deleted.
    pub workflow_id: i64,
    /// Its name, if it exists.
    pub name: Option<String>,
    /// The class of the difference.
    pub class: String,
    /// Why it is not repaired yet.
    pub last_error: Option<String>,
}

/// A schedule with a name of this environment that belongs to no workflow.
#[derive(Debug)]
pub struct Orphan {
    /// The schedule's name.
    pub name: String,
    /// When a sweep first listed it.
    pub first_seen: DateTime<Utc>,
    /// When a sweep last listed it.
    pub last_seen: DateTime<Utc>,
}

/// Requests a sweep. If one is already open, returns it, and sets its `force` if requested, even while it is in
/// progress.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn request_sweep(tx: &mut PgConnection, force: bool, edit: &Edit) -> sqlx::Result<Sweep> {
    let sweep = sqlx::query_as!(
        Sweep,
        r#"
        -- request a sweep
        INSERT INTO sweeps (requested_by, force, requested_on)
        VALUES ($1, $2, cronbox_now())
        ON CONFLICT ((TRUE)) WHERE finished_on IS NULL
        DO UPDATE SET force = sweeps.force OR excluded.force
        RETURNING id, requested_by, force, requested_on, started_on, finished_on, report
        "#,
        edit.actor,
        force,
    )
    .fetch_one(&mut *tx)
    .await?;
    let subject = format!("sweep:{}", sweep.id);
    let after = Some(json!({"force": force}));
    let entry = Entry { verb: "drift.check", subject, team_id: None, before: None, after };
    audit::record_entry(tx, edit, entry).await?;
    Ok(sweep)
}

/// Returns the sweep that is requested or in progress.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_open_sweep(db: &mut PgConnection) -> sqlx::Result<Option<Sweep>> {
    sqlx::query_as!(
        Sweep,
        r#"
        -- the open sweep: there is at most one
        SELECT id, requested_by, force, requested_on, started_on, finished_on, report
          FROM sweeps
         WHERE finished_on IS NULL
        "#
    )
    .fetch_optional(db)
    .await
}

/// Returns the newest finished sweep.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_last_sweep(db: &mut PgConnection) -> sqlx::Result<Option<Sweep>> {
    sqlx::query_as!(
        Sweep,
        r#"
        -- the last sweep
        SELECT id, requested_by, force, requested_on, started_on, finished_on, report
          FROM sweeps
         WHERE finished_on IS NOT NULL
         ORDER BY id DESC
         LIMIT 1
        "#
    )
    .fetch_optional(db)
    .await
}

/// Lists up to `limit` workflows whose schedule is known to differ.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_drifted_workflows(db: &mut PgConnection, limit: i64) -> sqlx::Result<Vec<Drifted>> {
    sqlx::query_as!(
        Drifted,
        r#"
        -- workflows with drift
        SELECT p.workflow_id, w.name AS "name?", p.drift AS "class!", p.last_error
          FROM publications AS p
          LEFT JOIN workflows AS w ON w.id = p.workflow_id
         WHERE p.drift IS NOT NULL
         ORDER BY p.workflow_id
         LIMIT $1
        "#,
        limit,
    )
    .fetch_all(db)
    .await
}

/// Lists up to `limit` orphans, the longest known first.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_orphans(db: &mut PgConnection, limit: i64) -> sqlx::Result<Vec<Orphan>> {
    sqlx::query_as!(
        Orphan,
        r#"
        -- orphans
        SELECT name, first_seen, last_seen FROM orphans ORDER BY first_seen, name LIMIT $1
        "#,
        limit,
    )
    .fetch_all(db)
    .await
}
