//! A connection that a worker keeps from one batch to the next.
//!
//! A connection that returns to its pool and is used again costs three round trips: its proof, and two pings of sqlx. A
//! small batch has hardly more. So a worker whose next batch already waits keeps its connection, for as long as a proof
//! counts (`server.rs`), and unless another caller waits for a connection.

use crate::connection::{AcquiredConnection, PgConnection};
use crate::pool::PgPool;
use crate::transaction::{Transaction, begin_on, begin_transaction};

/// At most one connection of a pool, which a worker uses for one batch after the other. Dropping it returns the
/// connection.
#[derive(Debug)]
pub struct KeptConnection {
    pool: PgPool,
    kept: Option<AcquiredConnection>,
}

impl KeptConnection {
    /// A worker's connection to the database of this pool; its first use acquires it.
    #[must_use]
    pub fn of(pool: PgPool) -> Self {
        Self { pool, kept: None }
    }

    /// Returns the kept connection, or another one of the pool, and keeps it.
    ///
    /// # Errors
    /// Fails like [`PgPool::acquire`].
    pub async fn acquire(&mut self) -> sqlx::Result<&mut PgConnection> {
        let connection = match self.take() {
            Some(kept) => kept,
            None => self.pool.acquire().await?,
        };
        Ok(self.kept.insert(connection))
    }

    /// Begins a transaction on the kept connection, or on another one of the pool. A transaction that does not end by
    /// [`Self::commit`] returns its connection to the pool.
    ///
    /// # Errors
    /// Fails like [`PgPool::acquire`].
    pub async fn begin(&mut self) -> sqlx::Result<Transaction> {
        // If the kept one is dead, nothing of the transaction has happened, so it begins on another one.
        if let Some(kept) = self.take()
            && let Ok(begun) = begin_on(kept).await
        {
            return Ok(begun);
        }
        begin_transaction(&self.pool).await
    }

    /// Commits a transaction, and keeps its connection.
    ///
    /// # Errors
    /// Fails like [`Transaction::commit`]; then the connection is not kept.
    pub async fn commit(&mut self, transaction: Transaction) -> sqlx::Result<()> {
        self.kept = Some(transaction.commit_and_return().await?);
        Ok(())
    }

    /// The kept connection, if it can be used further; otherwise the pool gets it.
    fn take(&mut self) -> Option<AcquiredConnection> {
        self.kept.take().filter(|kept| kept.is_still_proven() && !self.pool.has_waiting_callers())
    }
}
