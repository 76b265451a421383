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
    count_workflows(options).await
}

/// Like [`migrate_database`], but leaves a schema that is newer than this program as it is.
///
/// # Errors
/// Fails like [`migrate_database`], except for a newer schema.
pub async fn migrate_database_unless_newer(
    options: &db::Options,
    makes_roles: bool,
) -> anyhow::Result<db::SchemaState> {
    let state = db::migrate_unless_newer(options, makes_roles).await?;
    if state == db::SchemaState::Current {
        count_workflows(options).await?;
    }
    Ok(state)
}

async fn count_workflows(options: &db::Options) -> anyhow::Result<()> {
    let pool = db::connect_pool(options).await?;
    let counted = workflows::count_uncounted_workflows(&pool).await;
    pool.close().await;
    let counted = counted.context("cannot count the workflows of an older version: migrate again")?;
    if counted > 0 {
        tracing::info!(workflows = counted, "workflows of an older version counted for the limits of their teams");
    }
    Ok(())
}
