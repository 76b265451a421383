//! What a connection proves: that its server accepts writes, and that its last caller left no transaction open.

use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::{Executor as _, FromRow as _, PgConnection, Row as _};

use crate::options::Pooler;

/// How long a connection is used, so that none to a server that lost its writer role is kept.
pub(crate) const LONGEST_LIFE: Duration = Duration::from_secs(300);
/// Connections that were opened together are closed within this span, one after another.
const LIFE_SPREAD_SECS: u64 = 60;
/// SQLSTATE of a statement after one that failed, within the same transaction.
const IN_FAILED_TRANSACTION: &str = "25P02";

/// The columns of a proof.
macro_rules! prove {
    ($($before:literal)?) => {
        concat!(
            $($before,)?
            "pg_is_in_recovery() AS is_recovering,
             current_setting('transaction_read_only') = 'on' AS is_read_only,
             current_setting('lock_timeout') = '5s' AS has_timeouts,
             pg_backend_pid() AS backend"
        )
    };
}

/// What a server has answered.
#[derive(Clone, Copy, sqlx::FromRow)]
pub(crate) struct Proof {
    is_recovering: bool,
    is_read_only: bool,
    has_timeouts: bool,
    backend: i32,
}

/// Why a connection cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Recovering,
    ReadOnly,
    TimeoutsLost,
}

impl Refusal {
    /// What is wrong.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Refusal::Recovering => "its server is in recovery and cannot write",
            Refusal::ReadOnly => "its server is read-only",
            Refusal::TimeoutsLost => "a pooler has dropped the session's timeouts",
        }
    }

    /// What to do.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Refusal::Recovering | Refusal::ReadOnly => "use a DSN that names the writer",
            Refusal::TimeoutsLost => "set CRONBOX_POOLER to its mode, session or transaction",
        }
    }
}

impl Proof {
    /// Returns why the connection cannot be used; `None` = it can.
    pub(crate) fn refusal(self) -> Option<Refusal> {
        if self.is_recovering {
            Some(Refusal::Recovering)
        } else if self.is_read_only {
            Some(Refusal::ReadOnly)
        } else {
            None
        }
    }

    /// Returns why a new connection cannot be used: its session must have our timeouts, unless its transactions get them.
    pub(crate) fn refusal_of_new(self, pooler: Pooler) -> Option<Refusal> {
        let is_limited = self.has_timeouts || pooler == Pooler::Transaction;
        self.refusal().or((!is_limited).then_some(Refusal::TimeoutsLost))
    }

    /// Returns how long this connection is used.
    pub(crate) fn longest_life(self) -> Duration {
        LONGEST_LIFE - Duration::from_secs(u64::from(self.backend.unsigned_abs()) % LIFE_SPREAD_SECS)
    }
}

/// Asks the server whether it accepts writes.
pub(crate) async fn prove_server(connection: &mut PgConnection, pooler: Pooler) -> sqlx::Result<Proof> {
    let check = prove!("-- prove_server: it can write\n SELECT ");
    match pooler {
        // A prepared statement, so that it costs as much as a ping.
        Pooler::None | Pooler::Session => sqlx::query_as(check).fetch_one(connection).await,
        // One message, because the next one may reach another session of the server.
        Pooler::Transaction => Proof::from_row(&sqlx::raw_sql(check).fetch_one(connection).await?),
    }
}

/// Ends a transaction that was left open on a connection, and asks the server whether it accepts writes.
///
/// It checks first, because a `ROLLBACK` without a transaction writes a warning into the server's log each time.
/// Outside of a transaction a simple query starts at its own `now()`.
pub(crate) async fn prove_returned(connection: &mut PgConnection, pooler: Pooler) -> sqlx::Result<Proof> {
    let check = prove!("SELECT now() <> statement_timestamp() AS is_open, ");
    match sqlx::raw_sql(check).fetch_one(&mut *connection).await {
        Ok(row) if !row.try_get::<bool, _>("is_open")? => return Proof::from_row(&row),
        Ok(_) => {}
        Err(error) if code(&error).as_deref() == Some(IN_FAILED_TRANSACTION) => {}
        Err(error) => return Err(error),
    }
    connection.execute("ROLLBACK").await?;
    prove_server(connection, pooler).await
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(DatabaseError::code).map(Into::into)
}
