//! What a pool knows about the server behind its connections.
//!
//! After a failover a name may still lead to the old writer, and a host that has disappeared sends nothing. So each
//! connection checks that its server accepts writes: when it is opened, and before each use, instead of sqlx's ping.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::PgConnection;
use sqlx::postgres::PgPoolOptions;

use crate::leftovers::rollback_leftovers;

/// How long the server may send nothing within a statement; longer than the server's `statement_timeout` of 15 s.
pub const STATEMENT_LIMIT: Duration = Duration::from_secs(20);
/// The time limit of this check; less than half of the time for which a caller waits for a connection.
const PROOF_LIMIT: Duration = Duration::from_secs(2);
/// How long a connection is used, so that none to a server that lost its writer role is kept.
const LONGEST_LIFE: Duration = Duration::from_secs(300);
/// Connections that were opened together are closed within this span, one after another.
const LIFE_SPREAD_SECS: u64 = 60;

/// What the connections of one pool have found; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server(Arc<Mutex<Met>>);

#[derive(Debug, Default)]
struct Met {
    /// When a connection last got no answer; older connections lead to the same host.
    silent_since: Option<Instant>,
    /// Why the last connection was refused.
    refusal: Option<&'static str>,
}

/// The result of the check.
#[derive(Clone, Copy, sqlx::FromRow)]
struct Proof {
    is_recovering: bool,
    is_read_only: bool,
    backend: i32,
}

impl Server {
    /// Sets options of a pool that returns connections to this server only while it accepts writes.
    pub(crate) fn guard_pool(&self, options: PgPoolOptions) -> PgPoolOptions {
        let (connected, acquired, released) = (self.clone(), self.clone(), self.clone());
        options
            .max_lifetime(LONGEST_LIFE)
            // The check proves as much as a ping.
            .test_before_acquire(false)
            // After an error sqlx connects again, until the caller's wait ends.
            .after_connect(move |connection, _| {
                let server = connected.clone();
                Box::pin(async move { server.accept(connection).await })
            })
            .before_acquire(move |connection, met| {
                let server = acquired.clone();
                Box::pin(async move { Ok(server.still_accepts(connection, met.age).await) })
            })
            .after_release(move |connection, met| {
                let server = released.clone();
                Box::pin(async move { server.takes_back(connection, met.age).await })
            })
    }

    /// Returns why the last connection was refused, if one was since the last that was accepted.
    pub(crate) fn last_refusal(&self) -> Option<&'static str> {
        self.met(|met| met.refusal)
    }

    /// Records that a connection got no answer, so that all open connections are closed.
    pub(crate) fn fell_silent(&self) {
        tracing::warn!("database does not answer; its open connections are closed");
        self.met(|met| met.silent_since = Some(Instant::now()));
    }

    async fn accept(&self, connection: &mut PgConnection) -> sqlx::Result<()> {
        let proof = within_limit(PROOF_LIMIT, prove(connection)).await?;
        let refusal = proof.refusal();
        self.met(|met| met.refusal = refusal);
        refusal.map_or(Ok(()), |refusal| Err(sqlx::Error::Io(std::io::Error::other(refusal))))
    }

    async fn still_accepts(&self, connection: &mut PgConnection, age: Duration) -> bool {
        if self.is_silent(age) {
            return false;
        }
        match within_limit(PROOF_LIMIT, prove(connection)).await {
            Ok(proof) => match proof.refusal() {
                None => age < proof.longest_life(),
                Some(refusal) => {
                    tracing::warn!("connection closed: {refusal}");
                    false
                }
            },
            Err(error) => {
                if is_timeout(&error) {
                    self.fell_silent();
                }
                tracing::info!(%error, "idle connection closed");
                false
            }
        }
    }

    async fn takes_back(&self, connection: &mut PgConnection, age: Duration) -> sqlx::Result<bool> {
        if self.is_silent(age) {
            return Ok(false);
        }
        match within_limit(STATEMENT_LIMIT, rollback_leftovers(connection)).await {
            Ok(()) => Ok(true),
            Err(error) if is_timeout(&error) => {
                self.fell_silent();
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    fn is_silent(&self, age: Duration) -> bool {
        self.met(|met| met.silent_since.is_some_and(|since| since.elapsed() < age))
    }

    fn met<T>(&self, of: impl FnOnce(&mut Met) -> T) -> T {
        of(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Proof {
    fn refusal(self) -> Option<&'static str> {
        if self.is_recovering {
            Some("its server is in recovery and cannot write")
        } else if self.is_read_only {
            Some("its server is read-only")
        } else {
            None
        }
    }

    fn longest_life(self) -> Duration {
        LONGEST_LIFE - Duration::from_secs(u64::from(self.backend.unsigned_abs()) % LIFE_SPREAD_SECS)
    }
}

async fn prove(connection: &mut PgConnection) -> sqlx::Result<Proof> {
    // A prepared statement, so that it costs as much as a ping.
    sqlx::query_as(
        "-- prove_server: it can write
         SELECT pg_is_in_recovery() AS is_recovering,
                current_setting('transaction_read_only') = 'on' AS is_read_only,
                pg_backend_pid() AS backend",
    )
    .fetch_one(connection)
    .await
}

pub(crate) async fn within_limit<T>(limit: Duration, work: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    let silence = || sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the database does not answer"));
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(silence()))
}

fn is_timeout(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut)
}
