//! Step 3 of 7: how the publisher logs in to the database, also after the password was rotated.
//!
//! Postgres asks for a password when somebody connects, never again: a rotation is noticed when a
//! new connection is refused. The secret is then fetched anew, once for each refusal.

use db::PgPool;

use crate::config::Database;
use crate::secret;

/// SQLSTATE of a wrong password, and of a role that may not or does not exist: a rotation may change the name too.
const REFUSED: [&str; 2] = ["28P01", "28000"];

/// Where name and password come from.
pub struct Login {
    database: Database,
    options: fn(String) -> db::Options,
}

impl Login {
    /// By what `database` says; `options` makes the pool's of a DSN.
    pub fn new(database: Database, options: fn(String) -> db::Options) -> Self {
        Login { database, options }
    }

    /// The pool's options as of now.
    ///
    /// # Errors
    /// Returns one sentence if the secret cannot be fetched or parsed.
    pub async fn options(&self) -> anyhow::Result<db::Options> {
        secret::dsn(&self.database).await.map(self.options)
    }

    /// Whether `error` was a refused login, and new connections log in by the secret as it is now.
    pub(crate) async fn renewed_after(&self, pool: &PgPool, error: &anyhow::Error) -> bool {
        let can_change = self.database.db_dsn.is_none();
        if !can_change || !is_refused(error) {
            return false;
        }
        let renewed = self.options().await.and_then(|options| db::log_in_anew(pool, &options));
        match &renewed {
            Ok(()) => tracing::warn!("the database refused the login; the secret was fetched again"),
            Err(error) => tracing::error!("the database refused the login, and there is no other: {error:#}"),
        }
        renewed.is_ok()
    }
}

fn is_refused(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<sqlx::Error>());
    causes.any(|cause| {
        let code = cause.as_database_error().and_then(sqlx::error::DatabaseError::code);
        code.is_some_and(|code| REFUSED.contains(&&*code))
    })
}
