//! A connection with a client-side time limit for every statement.
//!
//! Postgres ends a statement after `statement_timeout`, but if a host disappears, the client has nothing to retransmit
//! and would wait forever. sqlx gives no access to its sockets, so the limit is here, in the only type on which the app
//! and the publisher can run a statement.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, Stream, TryFutureExt as _};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgRow, PgStatement, PgTypeInfo};
use sqlx::{AssertSqlSafe, Describe, Either, Execute, Executor, Postgres, SqlStr};
use tokio::time::{Instant, Sleep};

use crate::options::Pooler;
use crate::pooled::{Answer, Unnamed, begin_anywhere, run_in_transaction};
use crate::server::{PROVEN_FOR, STATEMENT_LIMIT, Server};

/// A connection of the pool. An error that ends its session closes it instead of returning it.
pub struct PgConnection {
    raw: PoolConnection<Postgres>,
    health: Health,
    session: Session,
    /// The statement that begins a transaction with the limits of the pool.
    begin: Arc<str>,
    acquired: Instant,
}

/// To which session of the server the connection leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    /// Always the same
    Own,
    /// The same until the caller's transaction ends
    OfTransaction,
    /// Another one in each transaction, so each statement has its own; an interrupted one is still open
    OfStatement { is_open: bool },
}

/// Whether the connection may return to its pool.
struct Health {
    server: Server,
    is_broken: bool,
}

impl PgConnection {
    pub(crate) fn new(raw: PoolConnection<Postgres>, server: Server, begin: Arc<str>) -> Self {
        let session = Session::behind(server.pooler());
        PgConnection { raw, health: Health { server, is_broken: false }, session, begin, acquired: Instant::now() }
    }

    /// Begins a transaction that the caller ends, with further settings of it if there are any.
    pub(crate) async fn begin(&mut self, settings: Option<&str>) -> sqlx::Result<()> {
        let begin: Arc<str> = match settings {
            None => Arc::clone(&self.begin),
            Some(settings) => format!("{}; {settings}", self.begin).into(),
        };
        if self.session == Session::Own {
            // Constants and numbers.
            return self.execute(AssertSqlSafe(begin)).await.map(drop);
        }
        let PgConnection { raw, health, session, .. } = self;
        // Also if it fails: a statement must not follow in another session.
        *session = Session::OfTransaction;
        health.limited(begin_anywhere(raw, &begin)).await
    }

    /// The caller's transaction has ended.
    pub(crate) fn leave_transaction(&mut self) {
        self.session = Session::behind(self.health.server.pooler());
    }

    /// Whether it may be used further without a proof of its server.
    pub(crate) fn is_still_proven(&self) -> bool {
        let used_for = self.acquired.elapsed();
        !self.health.is_broken && used_for < PROVEN_FOR && !self.health.server.is_silent(used_for)
    }
}

impl Session {
    /// That of a connection without a transaction.
    fn behind(pooler: Pooler) -> Self {
        match pooler {
            Pooler::None | Pooler::Session => Self::Own,
            Pooler::Transaction => Self::OfStatement { is_open: false },
        }
    }
}

impl Drop for PgConnection {
    fn drop(&mut self) {
        if self.health.is_broken {
            self.raw.close_on_drop();
        }
    }
}

impl fmt::Debug for PgConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgConnection").field("is_broken", &self.health.is_broken).finish_non_exhaustive()
    }
}

/// A connection without a transaction.
#[derive(Debug)]
pub struct AcquiredConnection(pub(crate) PgConnection);

impl Deref for AcquiredConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0
    }
}

impl DerefMut for AcquiredConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0
    }
}

impl<'c> Executor<'c> for &'c mut PgConnection {
    type Database = Postgres;

    fn fetch_many<'e, 'q, E>(self, query: E) -> BoxStream<'e, Answer>
    where
        'c: 'e,
        E: Execute<'q, Postgres>,
        'q: 'e,
        E: 'q,
    {
        let PgConnection { raw, health, session, begin, .. } = self;
        let answers = match session {
            Session::Own => (&mut **raw).fetch_many(query),
            Session::OfTransaction => (&mut **raw).fetch_many(Unnamed(query)),
            Session::OfStatement { is_open } => {
                let ended = health.all_answers(run_in_transaction(raw, begin, is_open, query));
                return Box::pin(ended.map_ok(futures::stream::iter).try_flatten_stream());
            }
        };
        let patience = Box::pin(tokio::time::sleep(STATEMENT_LIMIT));
        Box::pin(Limited { answers, patience, is_waiting: true, health })
    }

    fn fetch_optional<'e, 'q, E>(self, query: E) -> BoxFuture<'e, sqlx::Result<Option<PgRow>>>
    where
        'c: 'e,
        E: Execute<'q, Postgres>,
        'q: 'e,
        E: 'q,
    {
        let PgConnection { raw, health, session, begin, .. } = self;
        match session {
            Session::Own => health.limited((&mut **raw).fetch_optional(query)).boxed(),
            Session::OfTransaction => health.limited((&mut **raw).fetch_optional(Unnamed(query))).boxed(),
            Session::OfStatement { is_open } => {
                let ended = health.all_answers(run_in_transaction(raw, begin, is_open, query));
                async move {
                    let answers = ended.await?.into_iter().collect::<sqlx::Result<Vec<_>>>()?;
                    Ok(answers.into_iter().find_map(Either::right))
                }
                .boxed()
            }
        }
    }

    fn prepare_with<'e>(self, sql: SqlStr, parameters: &'e [PgTypeInfo]) -> BoxFuture<'e, sqlx::Result<PgStatement>>
    where
        'c: 'e,
    {
        let PgConnection { raw, health, .. } = self;
        health.limited((&mut **raw).prepare_with(sql, parameters)).boxed()
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, sqlx::Result<Describe<Postgres>>>
    where
        'c: 'e,
    {
        let PgConnection { raw, health, .. } = self;
        health.limited((&mut **raw).describe(sql)).boxed()
    }
}

impl Health {
    async fn limited<T>(&mut self, work: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
        match tokio::time::timeout(STATEMENT_LIMIT, work).await {
            Ok(done) => done.inspect_err(|error| self.notice(error)),
            Err(_) => Err(self.fell_silent()),
        }
    }

    /// Like [`Self::limited`], for the results of a statement.
    async fn all_answers(
        &mut self,
        work: impl Future<Output = sqlx::Result<Vec<Answer>>>,
    ) -> sqlx::Result<Vec<Answer>> {
        let answers = self.limited(work).await?;
        answers.iter().filter_map(|answer| answer.as_ref().err()).for_each(|error| self.notice(error));
        Ok(answers)
    }

    fn notice(&mut self, error: &sqlx::Error) {
        self.is_broken |= ends_session(error);
    }

    fn fell_silent(&mut self) -> sqlx::Error {
        self.is_broken = true;
        self.server.fell_silent();
        let sentence = format!("the database did not answer within {} s", STATEMENT_LIMIT.as_secs());
        sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, sentence))
    }
}

/// The results of one statement; the limit starts again with each result.
struct Limited<'e> {
    answers: BoxStream<'e, Answer>,
    patience: Pin<Box<Sleep>>,
    is_waiting: bool,
    health: &'e mut Health,
}

impl Stream for Limited<'_> {
    type Item = Answer;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Answer>> {
        let this = &mut *self;
        if let Poll::Ready(answer) = this.answers.as_mut().poll_next(context) {
            this.is_waiting = false;
            if let Some(Err(error)) = &answer {
                this.health.notice(error);
            }
            return Poll::Ready(answer);
        }
        if !this.is_waiting {
            this.is_waiting = true;
            this.patience.as_mut().reset(Instant::now() + STATEMENT_LIMIT);
        }
        this.patience.as_mut().poll(context).map(|()| {
            // If the stream were polled again, a silent statement would fail again and again.
            this.answers = Box::pin(futures::stream::empty());
            Some(Err(this.health.fell_silent()))
        })
    }
}

/// Whether no later statement can succeed on the connection.
fn ends_session(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => true,
        // Read-only, because the server has lost its writer role; or the server ends the session.
        sqlx::Error::Database(error) => error.code().is_some_and(|code| {
            code == "25006" || code == "25P03" || code.starts_with("57P0") || code.starts_with("08")
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::StreamExt as _;

    use super::*;

    /// A pool collects all results of a statement, also those after an error.
    #[tokio::test]
    async fn silence_ends_a_statement() {
        let mut health = Health { server: Server::default(), is_broken: false };
        let patience = Box::pin(tokio::time::sleep(Duration::ZERO));
        let answers = Box::pin(futures::stream::pending());
        let limited = Limited { answers, patience, is_waiting: true, health: &mut health };
        let answers: Vec<Answer> = limited.take(3).collect().await;
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert!(health.is_broken);
    }
}
