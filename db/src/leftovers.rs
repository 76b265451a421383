//! What a caller may leave behind on a connection that returns to its pool.

use sqlx::error::DatabaseError;
use sqlx::{Executor as _, Row as _};

/// SQLSTATE of a statement after one that failed, within the same transaction.
const IN_FAILED_TRANSACTION: &str = "25P02";

/// Ends a transaction that was left open on a connection.
///
/// It checks first, because a `ROLLBACK` without a transaction writes a warning into the server's log each time.
/// Outside of a transaction a simple query starts at its own `now()`.
pub(crate) async fn rollback_leftovers(connection: &mut sqlx::PgConnection) -> sqlx::Result<()> {
    let requested = sqlx::raw_sql("SELECT now() <> statement_timestamp()").fetch_one(&mut *connection).await;
    let is_open = match requested {
        Ok(row) => row.try_get(0)?,
        Err(error) if code(&error).as_deref() == Some(IN_FAILED_TRANSACTION) => true,
        Err(error) => return Err(error),
    };
    if is_open {
        connection.execute("ROLLBACK").await?;
    }
    Ok(())
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(DatabaseError::code).map(Into::into)
}
