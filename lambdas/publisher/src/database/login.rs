//! Step 3 of 7: how the publisher logs in to the database, also after a rotation of the password.
//!
//! Postgres checks the password only when a client connects, so a rotation shows when it refuses a new connection. The
//! secret is then fetched again, once for each refusal.

use db::PgPool;

use crate::config::Database;
use crate::database::secret;

/// The source of user name and password.
pub struct Login {
    database: Database,
    options: fn(String) -> db::Options,
}

impl Login {
    /// Creates a login for `database`; `options` makes the pool's options from a DSN.
    pub fn new(database: Database, options: fn(String) -> db::Options) -> Self {
        Login { database, options }
    }

    /// Returns the current options of the pool.
    ///
    /// # Errors
    /// Returns one sentence if the secret cannot be fetched or parsed.
    pub async fn load_options(&self) -> anyhow::Result<db::Options> {
        let dsn = secret::resolve_dsn(&self.database).await?;
        let direct = self.database.db_direct_dsn.as_deref();
        Ok(db::Options {
            pooler: self.database.pooler,
            direct_dsn: direct.map(|direct| db::with_ca(direct, self.database.db_ca_file.as_deref())),
            ..(self.options)(dsn)
        })
    }

    /// Whether `error` was a refused login. If so, new connections use the current secret.
    pub(crate) async fn renewed_after(&self, pool: &PgPool, error: &anyhow::Error) -> bool {
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
