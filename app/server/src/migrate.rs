//! Step 1 of 7: brings a database to this version: its schema, and what a migration cannot compute from its rows.

use anyhow::Context as _;

/// Applies the pending migrations, and counts the workflows of an older version for the limits of their teams. It can be
/// repeated; `makes_roles` as in [`db::migrate_with_roles`].
///
/// # Errors
/// Fails if a migration fails or cannot get its lock, or if the workflows cannot be counted.
pub async fn migrate_database(options: &db::Options, makes_roles: bool) -> anyhow::Result<()> {
    if makes_roles {
        db::migrate_with_roles(options).await?;
    } else {
        db::migrate_schema(options).await?;
    }
    let pool = db::connect_pool(options).await?;
    let counted = workflows::count_uncounted_workflows(&pool).await;
    pool.close().await;
    let counted = counted.context("cannot count the workflows of an older version: migrate again")?;
    if counted > 0 {
        tracing::info!(workflows = counted, "workflows of an older version counted for the limits of their teams");
    }
    Ok(())
}
