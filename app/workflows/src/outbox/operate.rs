//! Step 2 of 7: an operator's changes of outbox rows: list, retry, discard.
//!
//! The publication is locked first, as by an edit and a settle, so that no concurrent change of the same workflow is
//! lost.

use chrono::{DateTime, Utc};
use db::PgConnection;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::audit::{self, Edit, Entry};

/// An outbox row, with the state of its workflow's publication.
#[derive(Clone, Debug)]
pub struct Row {
    /// The id.
    pub id: i64,
    /// The workflow, which may be deleted by now.
    pub workflow_id: i64,
    /// `upsert` or `delete`.
    pub op: String,
    /// What the edit requested.
    pub payload: Value,
    /// The status.
    pub status: Status,
    /// When the edit was made.
    pub created_on: DateTime<Utc>,
    /// When a publisher settled it, or an operator discarded it.
    pub processed_on: Option<DateTime<Utc>>,
    /// When it failed permanently.
    pub failed_on: Option<DateTime<Utc>>,
    /// How many failed attempts counted.
    pub attempt_count: i32,
    /// The last error.
    pub error_message: Option<String>,
    /// The class of the workflow's last error.
    pub error_class: Option<String>,
    /// When the publisher processes the workflow next.
    pub due_at: Option<DateTime<Utc>>,
}

/// The status of an outbox row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum Status {
    /// To be published.
    Pending,
    /// Failed until the workflow's next edit, or a retry.
    Failed,
    /// Published.
    Processed,
    /// Failed, and discarded by an operator.
    Discarded,
}

/// The outcome of an operator's request.
#[derive(Debug)]
pub enum Operated {
    /// Done.
    Done(Row),
    /// There is no such row.
    Unknown,
    /// The status of the row does not allow the request.
    Refused(Status),
}

/// Makes a row's workflow due for publication at once, with the full number of attempts.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn retry_row(tx: &mut PgConnection, id: i64, edit: &Edit) -> sqlx::Result<Operated> {
    let Some(before) = lock(tx, id).await? else { return Ok(Operated::Unknown) };
    if !matches!(before.status, Status::Pending | Status::Failed) {
        return Ok(Operated::Refused(before.status));
    }
    reopen(tx, id).await?;
    repair(tx, before.workflow_id).await?;
    done(tx, "outbox.retry", before, edit).await
}

/// Discards a failed row: the publisher never publishes that edit, and the alarm no longer counts it.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn discard_row(tx: &mut PgConnection, id: i64, edit: &Edit) -> sqlx::Result<Operated> {
    let Some(before) = lock(tx, id).await? else { return Ok(Operated::Unknown) };
    if before.status != Status::Failed {
        return Ok(Operated::Refused(before.status));
    }
    let_go(tx, id).await?;
    done(tx, "outbox.discard", before, edit).await
}

async fn done(tx: &mut PgConnection, verb: &str, before: Row, edit: &Edit) -> sqlx::Result<Operated> {
    let after = find(tx, before.id).await?.ok_or(sqlx::Error::RowNotFound)?;
    let seen =
        |row: &Row| json!({"status": row.status, "attempt_count": row.attempt_count, "error": row.error_message});
    let entry = Entry {
        verb,
        subject: format!("outbox:{} of workflow:{}", after.id, after.workflow_id),
        team_id: after.payload["team_id"].as_i64(),
        before: Some(seen(&before)),
        after: Some(seen(&after)),
    };
    audit::record_entry(tx, edit, entry).await?;
    Ok(Operated::Done(after))
}

/// Locks the publication of a row, then reads the row.
async fn lock(tx: &mut PgConnection, id: i64) -> sqlx::Result<Option<Row>> {
    sqlx::query_scalar!(
        r#"
        -- lock: the publication is locked before the row is read, because a publisher may be settling it
        SELECT workflow_id
          FROM publications
         WHERE workflow_id = (SELECT aggregate_id FROM outbox_events WHERE id = $1)
           FOR UPDATE
        "#,
        id,
    )
    .fetch_optional(&mut *tx)
    .await?;
    find(tx, id).await
}

async fn find(tx: &mut PgConnection, id: i64) -> sqlx::Result<Option<Row>> {
    sqlx::query_as!(
        Row,
        r#"
        -- find an outbox row
        SELECT o.id AS "id!", o.aggregate_id AS "workflow_id!", o.op AS "op!", o.payload AS "payload!",
               outbox_status(o) AS "status!: Status", o.created_on AS "created_on!", o.processed_on, o.failed_on,
               o.attempt_count AS "attempt_count!", o.error_message,
               p.error_class AS "error_class?", p.due_at AS "due_at?"
          FROM outbox_events AS o
          LEFT JOIN publications AS p ON p.workflow_id = o.aggregate_id
         WHERE o.id = $1
        "#,
        id,
    )
    .fetch_optional(tx)
    .await
}

async fn reopen(tx: &mut PgConnection, id: i64) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- reopen
        UPDATE outbox_events
           SET failed_on = NULL, attempt_count = 0, error_message = NULL
         WHERE id = $1 AND processed_on IS NULL
        "#,
        id,
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn repair(tx: &mut PgConnection, workflow_id: i64) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- repair: the state in EventBridge is unknown now (spec_hash), so the publisher calls; a settle of a call in
        -- flight sees by `repairs` that this was requested meanwhile
        UPDATE publications
           SET attempt_count = 0,
               failures = 0,
               superseded = 0,
               is_repair = FALSE,
               repairs = repairs + 1,
               error_class = NULL,
               last_error = NULL,
               spec_hash = NULL,
               due_at = CASE WHEN is_repair THEN cronbox_now() ELSE LEAST(due_at, cronbox_now()) END
         WHERE workflow_id = $1
        "#,
        workflow_id,
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn let_go(tx: &mut PgConnection, id: i64) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- discard: `failed_on` keeps its value, for the record
        UPDATE outbox_events SET processed_on = cronbox_now() WHERE id = $1 AND processed_on IS NULL
        "#,
        id,
    )
    .execute(tx)
    .await
    .map(drop)
}
