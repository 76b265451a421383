//! How a program logs in to the database, also after a rotation of the password.
//!
//! Postgres checks the password only when a client connects, so a rotation shows when it refuses a new connection. The
//! secret is then fetched again, once for each refusal.

use db::PgPool;

use crate::arguments::Database;
use crate::secret;

/// The source of user name and password.
pub struct Login {
    database: Database,
    options: Box<dyn Fn(String) -> db::Options + Send + Sync>,
}

impl Login {
    /// Creates a login for `database`; `options` makes the pool's options from a DSN.
    pub fn new(database: Database, options: impl Fn(String) -> db::Options + Send + Sync + 'static) -> Self {
        Login { database, options: Box::new(options) }
    }

    /// Returns the current options of the pool.
    ///
    /// # Errors
    /// Returns one sentence if the secret cannot be fetched or parsed.
    pub async fn load_options(&self) -> anyhow::Result<db::Options> {
        let dsn = secret::resolve_dsn(&self.database).await?;
        Ok(db::Options { pooler: self.database.pooler, ..(self.options)(dsn) })
    }

    /// Whether `error` was a refused login. If so, new connections use the current secret.
    pub async fn renewed_after(&self, pool: &PgPool, error: &anyhow::Error) -> bool {
        let can_change = self.database.db_dsn.is_none();
        if !can_change || !is_refused(error) {
            return false;
        }
        let renewed = self.load_options().await.and_then(|options| db::log_in_anew(pool, &options));
        match &renewed {
            Ok(()) => tracing::warn!("login refused by the database; the secret was read again"),
            Err(error) => {
                tracing::error!("login refused by the database, and the secret was not read again: {error:#}");
            }
        }
        renewed.is_ok()
    }
}

fn is_refused(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref()).any(db::is_refused_login)
}
