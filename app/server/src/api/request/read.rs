//! Steps 1 and 7 of 7: reads of lists and statistics: in one snapshot, and each statement for two seconds at most.

use axum::http::StatusCode;
use db::{READ_LIMIT_SECS, Transaction};

use super::error::Error;
use super::request_id::{RequestId, current_id};
use crate::App;

/// SQLSTATE of a statement that took longer than its limit.
const QUERY_CANCELED: &str = "57014";
const _: () = assert!(READ_LIMIT_SECS == 2, "the sentence below names the limit");

/// Begins a read. If the client disconnects, it is dropped, and its statement ends at its limit.
///
/// # Errors
/// Returns 503 if the database cannot be reached.
pub(crate) async fn begin_read(app: &App) -> Result<Transaction, Error> {
    Ok(db::begin_read(&app.pools.reads).await?)
}

/// Returns the answer to a failed statement of a read: one that took too long would do so again.
pub(crate) fn failed_read(error: sqlx::Error) -> Error {
    let code = |error: &sqlx::Error| error.as_database_error().and_then(|error| error.code().map(String::from));
    if code(&error).as_deref() != Some(QUERY_CANCELED) {
        return error.into();
    }
    let id = current_id();
    tracing::warn!(request_id = id.as_ref().map(RequestId::as_str), %error, "read ended at its limit");
    Error::Later(
        StatusCode::SERVICE_UNAVAILABLE,
        "read_too_slow",
        "the list or statistic took longer than 2 s: ask for less, for example by workflow_id, from, to or limit",
        5,
    )
}
