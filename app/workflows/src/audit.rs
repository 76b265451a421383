//! Step 1 of 7: the audit log: actor and content of each change. Append-only, written in the transaction of the change.
//!
//! An entry has what the change changed, and of a large value only its digest, so that its size does not depend on the
//! size of the object. Entries of version 0.1 have the complete object before and after. The job `prune` drops old months
//! by a function of the schema's owner.

pub mod chain;
mod difference;
pub mod dry_run;
pub mod list;
pub mod verify;
mod writers;

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use serde_json::Value;

use crate::events;

/// The actor, time and origin of a change.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The key's public prefix, the user of the command line, a file, or cronbox itself.
    pub actor: String,
    /// The name of the key.
    pub actor_name: Option<String>,
    /// The address from which the request came.
    pub source_address: Option<IpAddr>,
    /// The business clock at the start of the request.
    pub now: DateTime<Utc>,
    /// W3C trace context of the request.
    pub traceparent: Option<String>,
}

impl Edit {
    /// An edit that no request made.
    #[must_use]
    pub fn without_request(actor: impl Into<String>, now: DateTime<Utc>) -> Self {
        Self { actor: actor.into(), actor_name: None, source_address: None, now, traceparent: None }
    }

    /// The second field of the trace context.
    pub(crate) fn trace_id(&self) -> Option<&str> {
        self.traceparent.as_deref()?.split('-').nth(1)
    }
}

/// One entry of the log; `before` and `after` contain no secrets. If both exist, the log gets their difference.
pub struct Entry<'a> {
    /// The action: `create`, `update`, `pause`, ..
    pub verb: &'a str,
    /// The object: `workflow:12`.
    pub subject: String,
    /// The team of the object, whose members may read the entry; `None`: only admins.
    pub team_id: Option<i64>,
    /// The state before the change.
    pub before: Option<Value>,
    /// The state after the change.
    pub after: Option<Value>,
}

/// A row of the log: what it keeps of an entry.
pub(crate) struct Row<'a> {
    pub(crate) edit: &'a Edit,
    pub(crate) verb: &'a str,
    pub(crate) subject: String,
    pub(crate) team_id: Option<i64>,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
}

/// The answer of a statement that inserts a row of the log.
struct Inserted {
    is_followed: bool,
}

/// Ends a statement with the insert of a row of the log: the columns are listed once, and `query_as!` accepts only literals.
///
/// The caller gives the type of the answer, the statements before, the parameters of the row, more answers, and the values
/// of the parameters before those of the row.
macro_rules! insert_row {
    ($answer:ident, $tx:expr, $row:ident, [$($before:tt)*], $parameters:tt, $answers:tt, [$($values:tt)*]) => {
        sqlx::query_as!(
            $answer,
            $($before +)*
                r#"
        INSERT INTO audit_log (at, actor, verb, subject, before, after, team_id, actor_name, source_address, trace_id)
        VALUES "#
                + $parameters
                + r#"
        RETURNING EXISTS (SELECT FROM event_listeners WHERE live_until > clock_timestamp()) AS "is_followed!"
        "#
                + $answers,
            $($values)*
            $row.edit.now,
            $row.edit.actor,
            $row.verb,
            $row.subject,
            $row.before,
            $row.after,
            $row.team_id,
            $row.edit.actor_name,
            $row.edit.source_address.map(|address| address.to_string()),
            $row.edit.trace_id(),
        )
        .fetch_one($tx)
        .await
    };
}
pub(crate) use insert_row;

/// Records a change.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn record_entry(tx: &mut PgConnection, edit: &Edit, entry: Entry<'_>) -> sqlx::Result<()> {
    let row = Row::of_entry(edit, entry);
    let inserted = insert_row!(
        Inserted,
        &mut *tx,
        row,
        [r#"
        -- record an audit entry; does a client follow the events
        "#],
        "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        "",
        []
    )?;
    row.write_event(tx, inserted.is_followed).await
}

impl<'a> Row<'a> {
    /// The row for an entry, which a dry run lists.
    pub(crate) fn of_entry(edit: &'a Edit, entry: Entry<'a>) -> Self {
        let Entry { verb, subject, team_id, .. } = entry;
        let (before, after) = difference::reduce_states(entry.before, entry.after);
        dry_run::note_change(verb, &subject, before.as_ref(), after.as_ref());
        Self { edit, verb, subject, team_id, before, after }
    }

    /// Writes the event of an inserted row, if a client follows the events. A statement of its own: as a part of the first
    /// one it would cost each edit more, also if no client follows.
    pub(crate) async fn write_event(&self, tx: &mut PgConnection, is_followed: bool) -> sqlx::Result<()> {
        if is_followed {
            events::write_edit(tx, self.verb, self.team_id, &self.subject, &self.edit.actor).await?;
        }
        Ok(())
    }
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
