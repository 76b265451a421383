//! What a pool knows about the server behind its connections.
//!
//! After a failover a name may still lead to the old writer, and a host that has disappeared sends nothing. So each
//! connection checks that its server accepts writes: when it is opened, when it is returned, and before a use after a
//! pause. Without a pause, sqlx's ping shows before the use that the connection still exists. A worker that uses one
//! connection for batch after batch returns it as often.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnectionMetadata;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::sync::Notify;

use crate::options::{Pooler, SESSION_SETTINGS};
use crate::proof::{LONGEST_LIFE, Proof, Refusal, prove_returned, prove_server};

/// How long the server may send nothing within a statement; longer than the server's `statement_timeout` of 15 s.
pub const STATEMENT_LIMIT: Duration = Duration::from_secs(20);
/// The time limit of this check; less than half of the time for which a caller waits for a connection.
const PROOF_LIMIT: Duration = Duration::from_secs(2);
/// A connection that was proven when it was returned needs only a ping within this time, and a worker may keep one for as
/// long (`kept.rs`). At high load, a proof before each use would cost an eighth of the throughput.
pub(crate) const PROVEN_FOR: Duration = Duration::from_millis(500);
/// SQLSTATE of a wrong password, and of a role that does not exist or may not log in, because a rotation may change the
/// name too.
const REFUSED_LOGIN: [&str; 2] = ["28P01", "28000"];

/// What the connections of one pool have found; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    met: Arc<Mutex<Met>>,
    refused_login: Arc<Notify>,
    pooler: Pooler,
}

#[derive(Debug, Default)]
struct Met {
    /// When a connection last got no answer; older connections lead to the same host.
    silent_since: Option<Instant>,
    /// Why the last connection was refused.
    refusal: Option<Refusal>,
}

impl Server {
    /// Nothing is known yet of the server behind this pooler.
    pub(crate) fn behind(pooler: Pooler) -> Self {
        Server { pooler, ..Server::default() }
    }

    /// What its connections lead to.
    pub(crate) fn pooler(&self) -> Pooler {
        self.pooler
    }

    /// Sets options of a pool that returns connections to this server only while it accepts writes.
    pub(crate) fn guard_pool(&self, options: PgPoolOptions) -> PgPoolOptions {
        let (connected, acquired, released) = (self.clone(), self.clone(), self.clone());
        options
            .max_lifetime(LONGEST_LIFE)
            // `still_accepts` pings, or proves as much as a ping.
            .test_before_acquire(false)
            // After an error sqlx connects again, until the caller's wait ends.
            .after_connect(move |connection, _| {
                let server = connected.clone();
                Box::pin(async move { server.accept(connection).await })
            })
            .before_acquire(move |connection, met| {
                let server = acquired.clone();
                Box::pin(async move { Ok(server.still_accepts(connection, met).await) })
            })
            .after_release(move |connection, met| {
                let server = released.clone();
                Box::pin(async move { server.takes_back(connection, met.age).await })
            })
    }

    /// Returns why the last connection was refused, if one was since the last that was accepted.
    pub(crate) fn last_refusal(&self) -> Option<Refusal> {
        self.met(|met| met.refusal)
    }

    /// Wakes who waits for it, if the server refused a login.
    pub(crate) fn notice_login(&self, error: &sqlx::Error) {
        if is_refused_login(error) {
            self.refused_login.notify_one();
        }
    }

    /// Returns after the server has refused a login, at once if it has since the last call.
    pub(crate) async fn login_refused(&self) {
        self.refused_login.notified().await;
    }

    /// Records that a connection got no answer, so that all open connections are closed.
    pub(crate) fn fell_silent(&self) {
        tracing::warn!("database does not answer; its open connections are closed");
        self.met(|met| met.silent_since = Some(Instant::now()));
    }

    async fn accept(&self, connection: &mut PgConnection) -> sqlx::Result<()> {
        let proof = within_limit(PROOF_LIMIT, async {
            if self.pooler == Pooler::Session {
                connection.execute(SESSION_SETTINGS).await?;
            }
            prove_server(connection, self.pooler).await
        });
        let refusal = proof.await?.refusal_of_new(self.pooler);
        self.met(|met| met.refusal = refusal);
        refusal.map_or(Ok(()), |refusal| Err(sqlx::Error::Io(std::io::Error::other(refusal.sentence()))))
    }

    async fn still_accepts(&self, connection: &mut PgConnection, met: PoolConnectionMetadata) -> bool {
        if self.is_silent(met.age) {
            return false;
        }
        let usable = within_limit(PROOF_LIMIT, async {
            if met.idle_for < PROVEN_FOR {
                return connection.ping().await.map(|()| true);
            }
            Ok(is_usable(prove_server(connection, self.pooler).await?, met.age))
        });
        match usable.await {
            Ok(usable) => usable,
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
        match within_limit(STATEMENT_LIMIT, prove_returned(connection, self.pooler)).await {
            Ok(proof) => Ok(is_usable(proof, age)),
            Err(error) if is_timeout(&error) => {
                self.fell_silent();
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a connection got no answer within the last `age`.
    pub(crate) fn is_silent(&self, age: Duration) -> bool {
        self.met(|met| met.silent_since.is_some_and(|since| since.elapsed() < age))
    }

    fn met<T>(&self, of: impl FnOnce(&mut Met) -> T) -> T {
        of(&mut self.met.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether the server refused a login, because of the password or the name.
#[must_use]
pub fn is_refused_login(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| REFUSED_LOGIN.contains(&&*code))
}

/// Whether a failure says nothing about other statements: the server works, and it refused this one.
#[must_use]
pub fn concerns_one_statement(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => error.code().is_none_or(|code| {
            // Classes for connection, schema and rights, resources, operator intervention, system; and a read-only
            // server.
            let concerns_all = ["08", "42", "53", "57P", "58", "XX"].iter().any(|class| code.starts_with(class));
            !concerns_all && code != "25006"
        }),
        sqlx::Error::RowNotFound
        | sqlx::Error::Decode(_)
        | sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Encode(_) => true,
        _ => false,
    }
}

/// Whether a connection of this age may be used again.
fn is_usable(proof: Proof, age: Duration) -> bool {
    if let Some(refusal) = proof.refusal() {
        tracing::warn!("connection closed: {}", refusal.sentence());
        return false;
    }
    age < proof.longest_life()
}

pub(crate) async fn within_limit<T>(limit: Duration, work: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    let silence = || sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the database does not answer"));
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(silence()))
}

fn is_timeout(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut)
}
