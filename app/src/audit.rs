//! Step 1 of 7: who changed what. Append-only, written in the transaction of the change.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;

/// Who changes something, when, and on whose trace.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The key's public prefix, or the command line.
    pub actor: String,
    /// The business clock at the start of the request.
    pub now: DateTime<Utc>,
    /// W3C trace context of the request.
    pub traceparent: Option<String>,
}

/// One change, as the log keeps it; `before` and `after` hold no secrets.
pub struct Entry<'a> {
    /// What was done: `create`, `update`, `pause`, ..
    pub verb: &'a str,
    /// To what: `workflow:12`.
    pub subject: String,
    /// What stood before.
    pub before: Option<Value>,
    /// What stands now.
    pub after: Option<Value>,
}

/// Records a change.
///
/// # Errors
/// The database's.
pub async fn record(tx: &mut PgConnection, edit: &Edit, entry: Entry<'_>) -> sqlx::Result<()> {
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
        entry.before,
        entry.after,
    )
    .execute(tx)
    .await
    .map(drop)
}
