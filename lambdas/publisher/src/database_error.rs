//! Step 3 of 7: errors of the database, explained to the operator.

use anyhow::anyhow;
use sqlx::error::DatabaseError;

/// Postgres's codes for an unknown table or function.
const UNDEFINED_TABLE: &str = "42P01";
const UNDEFINED_FUNCTION: &str = "42883";

/// Explains the first error that an empty or foreign database causes.
pub(crate) fn in_words(error: sqlx::Error) -> anyhow::Error {
    match error.as_database_error().and_then(DatabaseError::code).as_deref() {
        Some(UNDEFINED_TABLE | UNDEFINED_FUNCTION) => {
            anyhow!("the database has no outbox: run `cronbox-app migrate` on it")
        }
        _ => anyhow::Error::from(error).context("the outbox cannot be read"),
    }
}
