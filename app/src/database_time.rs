//! Steps 1 and 7 of 7: the database's time, which decides everything that is due.

use chrono::{DateTime, Utc};
use db::PgConnection;

/// The database's time.
///
/// # Errors
/// The statement fails.
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
