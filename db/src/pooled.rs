//! Statements behind a pooler that works by transactions.
//!
//! The next transaction may run in another session of the server. So each statement is in a transaction, which begins
//! with our timeouts and the proof that its server can write, and has no name that another session would not know.

use std::sync::Arc;

use futures::StreamExt as _;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArguments, PgQueryResult, PgRow, PgStatement};
use sqlx::{AssertSqlSafe, Either, Execute, Executor as _, PgConnection, Postgres, Row as _, SqlStr};

use crate::proof::Refusal;

/// A result of a statement: a row, or the number of changed rows.
pub(crate) type Answer = sqlx::Result<Either<PgQueryResult, PgRow>>;

/// A statement without a name.
pub(crate) struct Unnamed<E>(pub(crate) E);

impl<'q, E: Execute<'q, Postgres>> Execute<'q, Postgres> for Unnamed<E> {
    fn sql(self) -> SqlStr {
        self.0.sql()
    }

    fn statement(&self) -> Option<&PgStatement> {
        self.0.statement()
    }

    fn take_arguments(&mut self) -> Result<Option<PgArguments>, BoxDynError> {
        self.0.take_arguments()
    }

    fn persistent(&self) -> bool {
        false
    }
}

/// Begins a transaction with the pool's limits, in a session that can write.
pub(crate) async fn begin_anywhere(connection: &mut PgConnection, begin: &Arc<str>) -> sqlx::Result<()> {
    // Constants and numbers.
    let shown = sqlx::raw_sql(AssertSqlSafe(Arc::clone(begin))).fetch_one(connection).await?;
    if shown.try_get::<String, _>("transaction_read_only")? == "on" {
        return Err(sqlx::Error::Io(std::io::Error::other(Refusal::ReadOnly.sentence())));
    }
    Ok(())
}

/// Runs a statement in a transaction of its own. `is_open` says whether one that was interrupted is still open.
pub(crate) async fn run_in_transaction<'q, E>(
    connection: &mut PgConnection,
    begin: &Arc<str>,
    is_open: &mut bool,
    query: E,
) -> sqlx::Result<Vec<Answer>>
where
    E: Execute<'q, Postgres> + 'q,
{
    if std::mem::replace(is_open, true) {
        connection.execute("ROLLBACK").await?;
    }
    begin_anywhere(connection, begin).await?;
    let answers: Vec<Answer> = connection.fetch_many(Unnamed(query)).collect().await;
    if answers.iter().all(Result::is_ok) {
        connection.execute("COMMIT").await?;
        *is_open = false;
    } else {
        // The caller gets the statement's error. If this one fails too, the next statement rolls back first.
        *is_open = connection.execute("ROLLBACK").await.is_err();
    }
    Ok(answers)
}
