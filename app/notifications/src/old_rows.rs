//! Step 7 of 7: removes old notifications and messages.

use chrono::{DateTime, Utc};
use db::PgConnection;

/// How many rows one statement removes.
const BATCH: i64 = 10_000;

/// Removes a batch of the notifications that were created before a time, with their items; returns how many.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn remove_notifications(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove old notifications with their items; the lowest ids are the oldest
        WITH old AS MATERIALIZED (
            SELECT id, created_on FROM notifications ORDER BY id LIMIT $2
        )
        DELETE FROM notifications n USING old WHERE n.id = old.id AND old.created_on < $1
        "#,
        before,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}

/// Removes a batch of the messages that were created before a time; returns how many.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn remove_messages(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove old messages
        WITH old AS MATERIALIZED (
            SELECT id, created_on FROM notification_messages ORDER BY id LIMIT $2
        )
        DELETE FROM notification_messages m USING old WHERE m.id = old.id AND old.created_on < $1
        "#,
        before,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}

/// Removes a batch of the streaks whose last failure was before a time; returns how many.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn remove_streaks(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove streaks of workflows that no longer run
        WITH old AS MATERIALIZED (
            SELECT workflow_id FROM failure_streaks WHERE last_failed_on < $1 LIMIT $2
        )
        DELETE FROM failure_streaks f USING old WHERE f.workflow_id = old.workflow_id AND f.last_failed_on < $1
        "#,
        before,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}
