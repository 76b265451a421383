//! Steps 3 and 7 of 7: whether this database is the one that it says it is.
//!
//! A restored or cloned database remembers less than has happened. So until an operator has accepted
//! its ledger (`acceptance.rs`), no instance claims a run, takes a job or runs a late fire, and the
//! publisher publishes nothing. The statements ask `cronbox_hold` themselves: no instance can forget to.

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::Environment;

use crate::App;

/// The command that ends a hold.
pub const COMMAND: &str = "app ledger accept --until <end of the gap>";

/// What an instance does before it executes anything.
///
/// # Errors
/// Fails if the database does not answer.
pub async fn begin(app: &App) -> sqlx::Result<()> {
    let mut connection = app.pool.acquire().await?;
    claim_identity(&mut connection, &app.config.env).await?;
    if app.config.restored {
        mark_restored(&mut connection).await?;
    }
    Ok(())
}

/// Makes the identity's row if no process has made it yet, and notes since when a copy is held.
///
/// A row that another environment has made is a clone's: its workflows must not run a second time. A row of another
/// server or database holds by itself; the time tells the runs of the backup from those that are accepted since.
///
/// # Errors
/// Fails if the database does not answer.
pub async fn claim_identity(db: &mut PgConnection, environment: &Environment) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- claim identity: two who find none make one
        INSERT INTO database_identity AS i (environment) VALUES ($1)
        ON CONFLICT (singleton) DO UPDATE
           SET held_on = cronbox_now(), held_reason = COALESCE(cronbox_hold(), 'cloned')
         WHERE i.held_on IS NULL AND (i.environment <> $1 OR cronbox_hold() IS NOT NULL)
        "#,
        environment.to_string(),
    )
    .execute(db)
    .await
    .map(drop)
}

/// The environment that made or last accepted this database; `None` = no process has used it yet.
///
/// # Errors
/// Fails if the database does not answer.
pub async fn read_environment(db: &mut PgConnection) -> sqlx::Result<Option<String>> {
    sqlx::query_scalar!(
        r#"
        -- read environment
        SELECT environment FROM database_identity
        "#
    )
    .fetch_optional(db)
    .await
}

/// Why jobs and publisher wait: `restored`, `cloned`, `marked` or `eventbridge_ahead`; `None` = they do not.
///
/// # Errors
/// Fails if the database does not answer.
pub async fn read_hold(db: &mut PgConnection) -> sqlx::Result<Option<String>> {
    sqlx::query_scalar!(
        r#"
        -- read hold
        SELECT cronbox_hold()
        "#
    )
    .fetch_one(db)
    .await
}

/// Since when jobs and publisher wait, as far as a process has noted it; `None` = they do not.
///
/// # Errors
/// Fails if the database does not answer.
pub async fn read_hold_start(db: &mut PgConnection) -> sqlx::Result<Option<DateTime<Utc>>> {
    let held_on = sqlx::query_scalar!(
        r#"
        -- read hold start
        SELECT held_on FROM database_identity
        "#
    )
    .fetch_optional(db)
    .await?;
    Ok(held_on.flatten())
}

/// Holds jobs and publisher until the next acceptance: a storage snapshot was restored, which nothing else tells.
///
/// # Errors
/// Fails if the database does not answer.
pub async fn mark_restored(db: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- mark restored
        UPDATE database_identity SET held_on = cronbox_now(), held_reason = 'marked' WHERE held_on IS NULL
        "#
    )
    .execute(db)
    .await
    .map(drop)
}

/// Fails as any edit would on a server that cannot write; changes nothing.
///
/// # Errors
/// Fails if the server is read-only or does not answer.
pub async fn prove_writable(db: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- prove_writable: refused by a server that is read-only; changes no row
        UPDATE jobs SET locked_by = locked_by WHERE false
        "#
    )
    .execute(db)
    .await
    .map(drop)
}
