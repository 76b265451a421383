//! The pool, whose connections can write and whose statements have a limit.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Describe, Either, Execute, Executor, Postgres, SqlStr};

use crate::connection::{AcquiredConnection, PgConnection};
use crate::options::{Options, connect_options, direct_options, server_address};
use crate::server::Server;

/// Connections to one database; clones share them.
#[derive(Clone, Debug)]
pub struct PgPool {
    raw: sqlx::PgPool,
    server: Server,
    direct: Direct,
}

/// The way past the pooler, if there is one; no derived `Debug`, because it has a password.
#[derive(Clone)]
struct Direct(Arc<Mutex<Option<PgConnectOptions>>>);

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").finish_non_exhaustive()
    }
}

/// Opens a pool and checks that it reaches a database that accepts writes.
///
/// # Errors
/// Returns one sentence that says what to do if the DSN cannot be parsed or the database does not answer.
pub async fn connect_pool(options: &Options) -> anyhow::Result<PgPool> {
    let pool = create_pool(options)?;
    match pool.acquire().await {
        Ok(_) => Ok(pool),
        Err(sqlx::Error::PoolTimedOut) => {
            let at = server_address(&connect_options(options)?);
            match pool.server.last_refusal() {
                Some(refusal) => {
                    bail!("the database at {at} cannot be used: {}; {}", refusal.sentence(), refusal.remedy())
                }
                None => bail!("the database at {at} does not answer: start it, or correct the DSN"),
            }
        }
        Err(error) => Err(error).with_context(|| {
            connect_options(options).map_or_else(
                |error| error.to_string(),
                |to| format!("cannot use the database at {}: check the DSN", server_address(&to)),
            )
        }),
    }
}

/// Creates a pool that connects at its first use.
///
/// # Errors
/// Fails if the DSN cannot be parsed. The error never repeats the DSN, because it contains a password.
pub fn create_pool(options: &Options) -> anyhow::Result<PgPool> {
    let server = Server::behind(options.pooler);
    let direct = Direct(Arc::new(Mutex::new(direct_options(options)?)));
    let guarded = server.guard_pool(
        PgPoolOptions::new().max_connections(options.max_connections).acquire_timeout(options.acquire_timeout),
    );
    Ok(PgPool { raw: guarded.connect_lazy_with(connect_options(options)?), server, direct })
}

/// Changes the login of new connections; open ones are not affected.
///
/// # Errors
/// Fails if the DSN cannot be parsed.
pub fn log_in_anew(pool: &PgPool, options: &Options) -> anyhow::Result<()> {
    pool.raw.set_connect_options(connect_options(options)?);
    *pool.direct.0.lock().unwrap_or_else(PoisonError::into_inner) = direct_options(options)?;
    Ok(())
}

impl PgPool {
    /// Returns a connection to a server that accepts writes.
    ///
    /// # Errors
    /// Fails if no connection is free within the pool's `acquire_timeout`, or if the server refuses the login.
    pub async fn acquire(&self) -> sqlx::Result<AcquiredConnection> {
        Ok(AcquiredConnection(PgConnection::new(self.raw.acquire().await?, self.server.clone())))
    }

    /// Closes all connections after they are returned.
    pub async fn close(&self) {
        self.raw.close().await;
    }

    /// How a connection that belongs to no pool reaches the server: past the pooler, if a DSN leads past it.
    pub(crate) fn direct_login(&self) -> PgConnectOptions {
        let direct = self.direct.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        direct.unwrap_or_else(|| (*self.raw.connect_options()).clone())
    }

    /// sqlx's pool, for its settings. Statements on it would have no time limit.
    #[must_use]
    pub fn raw_pool(&self) -> &sqlx::PgPool {
        &self.raw
    }
}

impl<'p> Executor<'p> for &'p PgPool {
    type Database = Postgres;

    /// Returns the results after the last row has arrived, so that the connection is back in the pool by then.
    fn fetch_many<'e, 'q, E>(self, query: E) -> BoxStream<'e, sqlx::Result<Either<PgQueryResult, PgRow>>>
    where
        'p: 'e,
        E: Execute<'q, Postgres>,
        'q: 'e,
        E: 'q,
    {
        let answers = async move {
            let mut connection = self.acquire().await?;
            let answers: Vec<_> = (&mut *connection).fetch_many(query).collect().await;
            Ok::<_, sqlx::Error>(futures::stream::iter(answers))
        };
        answers.into_stream().try_flatten().boxed()
    }

    fn fetch_optional<'e, 'q, E>(self, query: E) -> BoxFuture<'e, sqlx::Result<Option<PgRow>>>
    where
        'p: 'e,
        E: Execute<'q, Postgres>,
        'q: 'e,
        E: 'q,
    {
        async move { (&mut *self.acquire().await?).fetch_optional(query).await }.boxed()
    }

    fn prepare_with<'e>(self, sql: SqlStr, parameters: &'e [PgTypeInfo]) -> BoxFuture<'e, sqlx::Result<PgStatement>>
    where
        'p: 'e,
    {
        async move { (&mut *self.acquire().await?).prepare_with(sql, parameters).await }.boxed()
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, sqlx::Result<Describe<Postgres>>>
    where
        'p: 'e,
    {
        async move { (&mut *self.acquire().await?).describe(sql).await }.boxed()
    }
}
