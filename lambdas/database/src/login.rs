//! How a program logs in to the database, also after a rotation of the password.
//!
//! Postgres checks the password only when a client connects, so a rotation shows when it refuses a new connection. The
//! secret is then fetched again, once for each refusal.

use std::sync::{Mutex, PoisonError};

use db::PgPool;

use crate::arguments::Database;
use crate::secret;

/// The source of user name and password.
pub struct Login {
    database: Database,
    options: Box<dyn Fn(String) -> db::Options + Send + Sync>,
    /// The DSN that was loaded last.
    used: Mutex<Option<String>>,
}

/// Which versions of the secret may have the login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretVersions {
    /// The current one. Several tasks that share a pool use only this: none knows which login another task has set meanwhile.
    Current,
    /// Also the one before, if the database has refused the current one: the secret may name a login that the tasks of
    /// the app have not made yet. One that names another database is never used.
    CurrentOrPrevious,
}

impl Login {
    /// Creates a login for `database`; `options` makes the pool's options from a DSN.
    pub fn new(database: Database, options: impl Fn(String) -> db::Options + Send + Sync + 'static) -> Self {
        Login { database, options: Box::new(options), used: Mutex::new(None) }
    }

    /// Returns the current options of the pool.
    ///
    /// # Errors
    /// Returns one sentence if the secret cannot be fetched or parsed.
    pub async fn load_options(&self) -> anyhow::Result<db::Options> {
        Ok(self.use_dsn(secret::resolve_dsn(&self.database).await?))
    }

    /// Whether `error` was a refused login. If so, new connections use the secret that was fetched anew.
    pub async fn renewed_after(&self, pool: &PgPool, error: &anyhow::Error, versions: SecretVersions) -> bool {
        let can_change = self.database.db_dsn.is_none();
        if !can_change || !is_refused(error) {
            return false;
        }
        let renewed = self.load_next_options(versions).await.and_then(|options| db::log_in_anew(pool, &options));
        match &renewed {
            Ok(()) => tracing::warn!("login refused by the database; the secret was read again"),
            Err(error) => {
                tracing::error!("login refused by the database, and the secret was not read again: {error:#}");
            }
        }
        renewed.is_ok()
    }

    async fn load_next_options(&self, versions: SecretVersions) -> anyhow::Result<db::Options> {
        let current = secret::resolve_dsn(&self.database).await?;
        let is_refused = self.used.lock().unwrap_or_else(PoisonError::into_inner).as_ref() == Some(&current);
        if is_refused
            && versions == SecretVersions::CurrentOrPrevious
            && let Some(previous) = secret::find_previous_dsn(&self.database).await?
        {
            // The database may have moved. The one before has the same identity, and would publish its older state.
            if self.lead_to_one_database(&current, &previous) {
                return Ok(self.use_dsn(previous));
            }
            tracing::warn!("previous version of the secret not used: it names another database");
        }
        Ok(self.use_dsn(current))
    }

    fn lead_to_one_database(&self, current: &str, previous: &str) -> bool {
        let [current, previous] = [current, previous].map(|dsn| (self.options)(dsn.to_owned()));
        current.is_same_database(&previous)
    }

    fn use_dsn(&self, dsn: String) -> db::Options {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Some(dsn.clone());
        db::Options { pooler: self.database.pooler, ..(self.options)(dsn) }
    }
}

fn is_refused(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref()).any(db::is_refused_login)
}
