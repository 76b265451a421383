//! Step 1 of 7: the audit log: actor and content of each change. Append-only, written in the transaction of the change.
//!
//! An entry has what the change changed, and of a large value only its digest, so that its size does not depend on the
//! size of the object. Entries of version 0.1 have the complete object before and after. The job `prune` drops old months
//! by a function of the schema's owner.

mod difference;

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use serde_json::Value;

/// The actor, time and trace of a change.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The key's public prefix, or the command line.
    pub actor: String,
    /// The business clock at the start of the request.
    pub now: DateTime<Utc>,
    /// W3C trace context of the request.
    pub traceparent: Option<String>,
}

/// One entry of the log; `before` and `after` contain no secrets. If both exist, the log gets their difference.
pub struct Entry<'a> {
    /// The action: `create`, `update`, `pause`, ..
    pub verb: &'a str,
    /// The object: `workflow:12`.
    pub subject: String,
    /// The state before the change.
    pub before: Option<Value>,
    /// The state after the change.
    pub after: Option<Value>,
}

/// Records a change.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn record_entry(tx: &mut PgConnection, edit: &Edit, entry: Entry<'_>) -> sqlx::Result<()> {
    let (before, after) = difference::reduce_states(entry.before, entry.after);
    sqlx::query!(
        r#"
        -- record an audit entry
        INSERT INTO audit_log (at, actor, verb, subject, before, after)
        VALUES ($1, $2, $3, $4, $5, $6)
        "#,
        edit.now,
        edit.actor,
        entry.verb,
        entry.subject,
        before,
        after,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Returns the id of the newest entry, 0 without one.
///
/// # Errors
/// Fails if the database does not answer.
pub async fn newest_id(db: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- newest audit entry
        SELECT COALESCE(max(id), 0) AS "id!" FROM audit_log
        "#
    )
    .fetch_one(db)
    .await
}

/// Returns the workflows that entries after `id` deleted, with the id of each entry.
///
/// # Errors
/// Fails if the database does not answer.
pub async fn deleted_workflows(db: &mut PgConnection, after_id: i64) -> sqlx::Result<Vec<(i64, WorkflowId)>> {
    let entries = sqlx::query!(
        r#"
        -- deleted workflows: by an index of deletions, so that other edits are not read
        SELECT id, substr(subject, length('workflow:') + 1)::bigint AS "workflow_id!"
          FROM audit_log
         WHERE id > $1 AND verb = 'delete' AND subject LIKE 'workflow:%'
         ORDER BY id
        "#,
        after_id,
    )
    .fetch_all(db)
    .await?;
    Ok(entries.into_iter().map(|entry| (entry.id, WorkflowId(entry.workflow_id))).collect())
}
