//! Removes zone data that no kept time needs, and fires that disagreed with them.

use chrono::{DateTime, Utc};
use db::PgConnection;

use super::old_rows::BATCH;

/// Removes fires that disagreed with our zone data; the alarm counts those of the last hour.
pub(super) async fn remove_disagreements(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove_disagreements
        WITH old AS MATERIALIZED (
            SELECT workflow_id, scheduled_time FROM fire_disagreements
             WHERE seen_on < $1
             ORDER BY seen_on
             LIMIT $2
               FOR UPDATE SKIP LOCKED
        )
        DELETE FROM fire_disagreements d USING old
         WHERE d.workflow_id = old.workflow_id AND d.scheduled_time = old.scheduled_time
        "#,
        before,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}

/// Removes changes of zone data by which no kept time is evaluated: a later change was in force before all of them.
pub(super) async fn remove_changes(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- remove_changes
        DELETE FROM zone_changes c
         WHERE EXISTS (SELECT FROM zone_changes later WHERE later.id > c.id AND later.in_force_from < $1)
        "#,
        before,
    )
    .execute(db)
    .await
    .map(drop)
}

/// Removes zone data to which no change refers.
pub(super) async fn remove_data(db: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- remove_data
        DELETE FROM zone_data d WHERE NOT EXISTS (SELECT FROM zone_changes c WHERE c.version = d.version)
        "#
    )
    .execute(db)
    .await
    .map(drop)
}
