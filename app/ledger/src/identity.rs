//! Steps 3 and 7 of 7: detects that the database was restored or cloned.
//!
//! A restored or cloned database does not know everything that has happened. So until an operator accepts its ledger
//! (`acceptance.rs`), no instance claims a run, takes a job or runs a late fire, and the publisher publishes nothing.
//! The statements call `cronbox_hold` themselves, so no instance can bypass it.

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use schedule::Environment;

/// The environment of a process if none is set.
pub const DEFAULT_ENVIRONMENT: &str = "dev";
/// The command that accepts the ledger. With the first option a server that was only upgraded would lose what waits.
pub const COMMAND: &str = "cronbox-app ledger accept --until <end of the gap> | --nothing-lost";

/// Prepares the database's identity, before an instance executes anything. `is_restored` = the database is a restored
/// storage snapshot.
///
/// # Errors
/// Fails if the database does not answer.
pub async fn prepare_identity(pool: &PgPool, environment: &Environment, is_restored: bool) -> sqlx::Result<()> {
    let mut connection = pool.acquire().await?;
    claim_identity(&mut connection, environment).await?;
    if is_restored {
        mark_restored(&mut connection).await?;
    }
    Ok(())
}

/// Inserts the identity if it does not exist, and records since when a copy waits for acceptance.
///
/// A row of another environment shows a clone: its workflows must not run a second time. A copy on another server or
/// database waits even without this call; the recorded time separates the runs of the backup from those accepted since.
///
/// # Errors
/// Fails if the database does not answer.
pub async fn claim_identity(db: &mut PgConnection, environment: &Environment) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- claim identity: if two processes find none, only one row is inserted
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

/// Returns the environment that created or last accepted this database; `None` = no process has used it yet.
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

/// Returns why jobs and publisher wait: `restored`, `cloned`, `marked` or `eventbridge_ahead`; `None` = they do not.
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

/// Returns since when jobs and publisher wait, if a process has recorded it; `None` = they do not.
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

/// Makes jobs and publisher wait for the next acceptance, after a restore of a storage snapshot, which no other sign
/// shows.
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

/// Fails like any edit on a server that is read-only; changes nothing.
///
/// # Errors
/// Fails if the server is read-only or does not answer.
pub async fn prove_writable(db: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- prove_writable: a server that is read-only refuses it; it changes no row
        UPDATE jobs SET locked_by = locked_by WHERE false
        "#
    )
    .execute(db)
    .await
    .map(drop)
}
