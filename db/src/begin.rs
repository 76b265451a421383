//! A transaction that no cancelled caller can leave open.
//!
//! sqlx 0.9.0 returns a connection to its pool with the transaction still open when `begin` itself
//! is cancelled (launchbadge/sqlx#4393). A request that hangs up and a Lambda's deadline cancel just
//! there, so `begin` runs in a task of its own, and the pool rolls back what is left on release.

use sqlx::{Executor as _, PgConnection, PgPool, Postgres, Row as _, Transaction};

/// Begins a transaction; dropping the returned future leaves none behind.
///
/// # Errors
/// As [`PgPool::begin`].
pub async fn begin(pool: &PgPool) -> sqlx::Result<Transaction<'static, Postgres>> {
    let pool = pool.clone();
    #[expect(clippy::disallowed_methods, reason = "the one place where it cannot be cancelled")]
    let begun = tokio::spawn(async move { pool.begin().await });
    match begun.await {
        Ok(begun) => begun,
        Err(lost) => Err(sqlx::Error::Io(std::io::Error::other(lost))),
    }
}

/// Ends a transaction that somebody left open on a connection.
///
/// Asked first, because a bare `ROLLBACK` writes a warning into the server's log each time that
/// there is nothing to roll back. Outside a transaction a simple query starts at its own `now()`.
pub(crate) async fn rollback_leftovers(connection: &mut PgConnection) -> sqlx::Result<()> {
    let asked = sqlx::raw_sql("SELECT now() <> statement_timestamp()").fetch_one(&mut *connection).await?;
    if asked.try_get(0)? {
        tracing::warn!("a transaction was left open on a connection and is rolled back");
        connection.execute("ROLLBACK").await?;
    }
    Ok(())
}
