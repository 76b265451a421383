//! The pool, whose connections can write and whose statements have a limit.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, bail};
use futures::future::{BoxFuture, try_join_all};
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use prometheus_client::metrics::histogram::Histogram;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Describe, Either, Execute, Executor, Postgres, SqlStr};

use crate::connection::{AcquiredConnection, PgConnection};
use crate::limits::TransactionLimits;
use crate::options::{Options, connect_options, direct_options, server_address};
use crate::server::Server;

/// Connections to one database; clones share them.
#[derive(Clone, Debug)]
pub struct PgPool {
    raw: sqlx::PgPool,
    server: Server,
    /// The statement that begins a transaction.
    begin: Arc<str>,
    waits: Arc<Waits>,
    direct: Direct,
}

/// How many connections a new pool opens at once, if it may have so many; a drain of the publisher uses three.
const OPENED_AT_ONCE: u32 = 3;

/// The upper limits of the buckets of waits, in seconds; a caller waits 5 s at most.
const WAIT_BUCKETS: [f64; 11] = [0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0];

/// Callers that wait for a connection, how long they waited, and those that got none.
#[derive(Debug)]
struct Waits {
    waiting: AtomicUsize,
    timed_out: AtomicU64,
    seconds: Histogram,
}

impl Default for Waits {
    fn default() -> Self {
        let seconds = Histogram::new(WAIT_BUCKETS);
        Self { waiting: AtomicUsize::default(), timed_out: AtomicU64::default(), seconds }
    }
}

/// The use of a pool at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// Connections that the pool may have.
    pub limit: u32,
    /// Connections that are open, and that no caller uses now.
    pub idle: usize,
    /// Connections that callers use now.
    pub used: usize,
    /// Callers that wait for a connection now.
    pub waiting: usize,
    /// Callers that got no connection in time, since the start.
    pub timed_out: u64,
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
/// It opens a few connections at once, because a returned one is proven before it can be used again: the next statement
/// would otherwise wait for a login.
///
/// # Errors
/// Returns one sentence that says what to do if the DSN cannot be parsed or the database does not answer.
pub async fn connect_pool(options: &Options) -> anyhow::Result<PgPool> {
    let pool = create_pool(options)?;
    let opened = try_join_all((0..options.max_connections.min(OPENED_AT_ONCE)).map(|_| pool.acquire())).await;
    match opened.map(drop) {
        Ok(()) => Ok(pool),
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
    create_guarded(options, Server::behind(options.pooler))
}

/// Creates another pool to the database of `pool`, by the same way, as [`create_pool`]. What one of them finds out about
/// the server, for example that it is silent, counts for the connections of both.
///
/// # Errors
/// Fails if the DSN cannot be parsed.
pub fn create_pool_beside(pool: &PgPool, options: &Options) -> anyhow::Result<PgPool> {
    create_guarded(options, pool.server.clone())
}

fn create_guarded(options: &Options, server: Server) -> anyhow::Result<PgPool> {
    let direct = Direct(Arc::new(Mutex::new(direct_options(options)?)));
    let guarded = server.guard_pool(
        PgPoolOptions::new().max_connections(options.max_connections).acquire_timeout(options.acquire_timeout),
    );
    let raw = guarded.connect_lazy_with(connect_options(options)?);
    let begin = TransactionLimits::default().begin_statement(server.pooler());
    Ok(PgPool { raw, server, begin, waits: Arc::default(), direct })
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
        let (waiting, began) = (Waiting::begin(&self.waits), Instant::now());
        let acquired = self.raw.acquire().await;
        drop(waiting);
        self.waits.seconds.observe(began.elapsed().as_secs_f64());
        if matches!(acquired, Err(sqlx::Error::PoolTimedOut)) {
            self.waits.timed_out.fetch_add(1, Ordering::Relaxed);
        }
        if let Err(error) = &acquired {
            self.server.notice_login(error);
        }
        Ok(AcquiredConnection(PgConnection::new(acquired?, self.server.clone(), Arc::clone(&self.begin))))
    }

    /// Returns after the server has refused a login on this pool or one beside it, at once if it has since the last call.
    pub async fn login_refused(&self) {
        self.server.login_refused().await;
    }

    /// The same connections; a transaction on them begins with these limits, and behind a pooler that works by
    /// transactions so does each statement.
    #[must_use]
    pub fn with_limits(self, limits: TransactionLimits) -> Self {
        Self { begin: limits.begin_statement(self.server.pooler()), ..self }
    }

    /// Whether a caller waits for a connection.
    pub(crate) fn has_waiting_callers(&self) -> bool {
        self.waits.waiting.load(Ordering::Relaxed) > 0
    }

    /// How many connections are used, and how many callers wait for one.
    #[must_use]
    pub fn current_use(&self) -> PoolUse {
        let (open, idle) = (usize::try_from(self.raw.size()).unwrap_or(usize::MAX), self.raw.num_idle());
        PoolUse {
            limit: self.raw.options().get_max_connections(),
            idle,
            used: open.saturating_sub(idle),
            waiting: self.waits.waiting.load(Ordering::Relaxed),
            timed_out: self.waits.timed_out.load(Ordering::Relaxed),
        }
    }

    /// How many seconds callers waited for a connection; a connection that had to be opened counts with its login.
    #[must_use]
    pub fn wait_seconds(&self) -> &Histogram {
        &self.waits.seconds
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

    /// Wakes who waits in [`Self::login_refused`], if the server refused a login outside of the pool.
    pub(crate) fn notice_login(&self, error: &sqlx::Error) {
        self.server.notice_login(error);
    }

    /// sqlx's pool, for its settings. Statements on it would have no time limit.
    #[must_use]
    pub fn raw_pool(&self) -> &sqlx::PgPool {
        &self.raw
    }
}

/// A caller that waits for a connection. Dropping it ends the wait, also that of a cancelled caller.
struct Waiting<'a>(&'a Waits);

impl<'a> Waiting<'a> {
    fn begin(waits: &'a Waits) -> Self {
        waits.waiting.fetch_add(1, Ordering::Relaxed);
        Self(waits)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
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
