//! `LISTEN` on a connection that detects within a minute that the server has disappeared.

use std::time::Duration;

use sqlx::Executor as _;
use sqlx::postgres::{PgListener, PgPoolOptions};

use crate::pool::PgPool;
use crate::server::{STATEMENT_LIMIT, within_limit};

/// A listener only reads, so it cannot detect that the server has disappeared; a probe gets an answer or does not.
const PROBE_EVERY: Duration = Duration::from_secs(30);

/// Listens on one channel.
#[derive(Debug)]
pub struct Listener(PgListener);

impl Listener {
    /// Connects outside of the pool, so that a silent connection occupies none of the pool's, and listens.
    ///
    /// It leads past a pooler, if the options have a DSN for that: a pooler that works by transactions loses
    /// notifications.
    ///
    /// # Errors
    /// Fails if the database cannot be reached or refuses the statement.
    pub async fn connect(pool: &PgPool, channel: &str) -> sqlx::Result<Listener> {
        let patience = pool.raw_pool().options().get_acquire_timeout();
        let own = PgPoolOptions::new().max_connections(1).acquire_timeout(patience);
        let own = own.connect_lazy_with(pool.direct_login());
        let mut listener = PgListener::connect_with(&own).await.inspect_err(|error| pool.notice_login(error))?;
        within_limit(STATEMENT_LIMIT, listener.listen(channel)).await?;
        Ok(Listener(listener))
    }

    /// Waits for a notification, or for a new connection after a lost one, because notifications may have been lost
    /// too.
    ///
    /// # Errors
    /// Fails if the database refuses the statement or does not answer.
    pub async fn next_notification(&mut self) -> sqlx::Result<()> {
        loop {
            match tokio::time::timeout(PROBE_EVERY, self.0.try_recv()).await {
                Ok(received) => return received.map(drop),
                Err(_) => within_limit(STATEMENT_LIMIT, self.0.execute("SELECT 1")).await.map(drop)?,
            }
        }
    }
}
