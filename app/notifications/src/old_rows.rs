//! Step 7 of 7: removes old notifications and messages.

use chrono::{DateTime, Utc};
use db::PgConnection;

/// How many rows one statement removes.
const BATCH: i64 = 10_000;
/// How many such statements follow one another.
const BATCHES: usize = 20;

/// Removes notifications and messages that were created before a time, and streaks whose last failure was; returns how
/// many rows.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement; earlier batches remain removed.
pub async fn remove_old(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let mut removed = 0;
    for _ in 0..BATCHES {
        let batch = remove_notifications(db, before).await? + remove_messages(db, before).await?;
        removed += batch;
        if batch == 0 {
            break;
        }
    }
    Ok(removed + remove_streaks(db, before).await?)
}

async fn remove_notifications(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
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

async fn remove_messages(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
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

async fn remove_streaks(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove streaks of workflows that no longer run
        DELETE FROM failure_streaks WHERE last_failed_on < $1
        "#,
        before,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}
