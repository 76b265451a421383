//! `LISTEN` on a connection that notices within a minute that its peer is gone.

use std::time::Duration;

use sqlx::Executor as _;
use sqlx::postgres::{PgListener, PgPoolOptions};

use crate::STATEMENT_LIMIT;
use crate::pool::PgPool;
use crate::server::within;

/// A listener only reads, so a peer that vanished is never noticed; a probe is answered or is not.
const PROBE_EVERY: Duration = Duration::from_secs(30);

/// Listens on one channel.
#[derive(Debug)]
pub struct Listener(PgListener);

impl Listener {
    /// Connects beside the pool and listens: a peer that falls silent takes no connection of the pool along.
    ///
    /// # Errors
    /// Fails if the database cannot be reached or refuses the statement.
    pub async fn connect(pool: &PgPool, channel: &str) -> sqlx::Result<Listener> {
        let patience = pool.raw().options().get_acquire_timeout();
        let own = PgPoolOptions::new().max_connections(1).acquire_timeout(patience);
        let own = own.connect_lazy_with((*pool.raw().connect_options()).clone());
        let mut listener = PgListener::connect_with(&own).await?;
        within(STATEMENT_LIMIT, listener.listen(channel)).await?;
        Ok(Listener(listener))
    }

    /// Waits for a notification, or for a new connection in place of one that was lost: it may have missed some.
    ///
    /// # Errors
    /// Fails if the database refuses the statement or does not answer.
    pub async fn heard(&mut self) -> sqlx::Result<()> {
        loop {
            match tokio::time::timeout(PROBE_EVERY, self.0.try_recv()).await {
                Ok(heard) => return heard.map(drop),
                Err(_) => within(STATEMENT_LIMIT, self.0.execute("SELECT 1")).await.map(drop)?,
            }
        }
    }
}
