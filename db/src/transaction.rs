//! A transaction that a cancelled caller cannot leave open.
//!
//! sqlx 0.9.0 returns a connection to its pool with the transaction still open if `begin` itself is cancelled
//! (launchbadge/sqlx#4393). A request that disconnects and a Lambda's deadline may cancel there, so `begin` runs in a
//! task of its own, and the pool rolls back an open transaction on release.

use std::ops::{Deref, DerefMut};

use sqlx::Executor as _;

use crate::connection::{AcquiredConnection, PgConnection};
use crate::dry_run::is_dry_run;
use crate::pool::PgPool;

/// A transaction; dropping it rolls it back when its connection returns to the pool.
#[derive(Debug)]
pub struct Transaction(AcquiredConnection);

/// Begins a transaction with the limits of the pool; dropping the returned future leaves no open transaction.
///
/// # Errors
/// Fails like [`PgPool::acquire`].
pub async fn begin_transaction(pool: &PgPool) -> sqlx::Result<Transaction> {
    begin(pool, None).await
}

/// How long one statement of a list or of a statistic may take, in seconds.
pub const READ_LIMIT_SECS: u32 = 2;

/// A page of a list is read in the order of an index, and ends early. Postgres cannot know that, and would read and sort
/// all rows of a small table.
///
/// It follows the statement that begins the transaction, in the same message: no query has taken a snapshot by then.
const ONLY_READ: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY; \
                         SET LOCAL statement_timeout = '2s'; SET LOCAL enable_sort = off";

/// Postgres does not know how few rows of a day a span of workflows has, and would read all of the day.
const ONLY_READ_INDEXED: &str =
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL enable_seqscan = off";

/// Begins a transaction that only reads, all its statements in one snapshot, each for at most [`READ_LIMIT_SECS`].
///
/// # Errors
/// Fails like [`PgPool::acquire`].
pub async fn begin_read(pool: &PgPool) -> sqlx::Result<Transaction> {
    begin(pool, Some(ONLY_READ)).await
}

/// Begins a transaction that only reads, all its statements in one snapshot, and each by an index, if it has one.
///
/// # Errors
/// Fails like [`PgPool::acquire`].
pub async fn begin_indexed_read(pool: &PgPool) -> sqlx::Result<Transaction> {
    begin(pool, Some(ONLY_READ_INDEXED)).await
}

/// Begins a transaction on a connection that its worker has kept.
///
/// # Errors
/// Fails if the connection is dead; then it is closed.
pub(crate) async fn begin_on(kept: AcquiredConnection) -> sqlx::Result<Transaction> {
    begun(async { Ok(kept) }, None).await
}

async fn begin(pool: &PgPool, settings: Option<&'static str>) -> sqlx::Result<Transaction> {
    let pool = pool.clone();
    begun(async move { pool.acquire().await }, settings).await
}

async fn begun(
    connection: impl Future<Output = sqlx::Result<AcquiredConnection>> + Send + 'static,
    settings: Option<&'static str>,
) -> sqlx::Result<Transaction> {
    let started = tokio::spawn(async move {
        let mut connection = connection.await?;
        connection.begin(settings).await?;
        Ok(Transaction(connection))
    });
    match started.await {
        Ok(started) => started,
        Err(lost) => Err(sqlx::Error::Io(std::io::Error::other(lost))),
    }
}

impl Transaction {
    /// Commits the changes; in a dry run it rolls them back.
    ///
    /// # Errors
    /// Fails if the database fails; after a connection error it is unknown whether the changes are committed.
    pub async fn commit(self) -> sqlx::Result<()> {
        self.commit_and_return().await.map(drop)
    }

    /// As [`Self::commit`], and returns the connection.
    pub(crate) async fn commit_and_return(mut self) -> sqlx::Result<AcquiredConnection> {
        if is_dry_run() {
            // What a commit would check.
            self.0.execute("SET CONSTRAINTS ALL IMMEDIATE").await?;
            self.0.execute("ROLLBACK").await?;
        } else {
            self.0.execute("COMMIT").await?;
        }
        self.0.leave_transaction();
        Ok(self.0)
    }

    /// Commits if `done` is a success, and rolls back if it is an error.
    ///
    /// A transaction that is dropped keeps its locks until its connection processes the rollback. After this function
    /// another transaction can lock the same rows at once.
    ///
    /// # Errors
    /// Returns the error in `done`, or that of the COMMIT as for [`Self::commit`].
    pub async fn commit_or_rollback<T>(self, done: sqlx::Result<T>) -> sqlx::Result<T> {
        match done {
            Ok(done) => self.commit().await.map(|()| done),
            Err(error) => {
                // If this does not arrive, the server rolls back itself.
                self.rollback().await.ok();
                Err(error)
            }
        }
    }

    /// Rolls back the changes.
    ///
    /// # Errors
    /// Fails if the database fails; the changes are rolled back even then.
    pub async fn rollback(mut self) -> sqlx::Result<()> {
        self.0.execute("ROLLBACK").await.map(drop)
    }
}

impl Deref for Transaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0
    }
}
