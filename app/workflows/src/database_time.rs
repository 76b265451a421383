//! Steps 1 and 7 of 7: reads the database's time, by which due times are decided.

use chrono::{DateTime, Utc};
use db::PgConnection;

/// Reads the database's time.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn cronbox_now(db: &mut PgConnection) -> sqlx::Result<DateTime<Utc>> {
    sqlx::query_scalar!(
        r#"
        -- database time
        SELECT cronbox_now() AS "now!"
        "#
    )
    .fetch_one(db)
    .await
}
