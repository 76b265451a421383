//! Steps 1 and 7 of 7: when and from which address each key was last used.
//!
//! A request notes its key in memory. A task of the instance writes what it has noted once a minute, so that no request
//! waits for it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use uuid::Uuid;

/// The last use of each key on this instance that is not written yet; clones share it.
#[derive(Clone, Debug, Default)]
pub struct KeyUses(Arc<Mutex<HashMap<Uuid, KeyUse>>>);

/// The last use of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeyUse {
    from: IpAddr,
    on: DateTime<Utc>,
}

impl KeyUses {
    /// Notes a use of a key.
    pub fn note(&self, key: Uuid, from: IpAddr, on: DateTime<Utc>) {
        self.lock().insert(key, KeyUse { from, on });
    }

    /// Writes what is noted. If the database fails, it stays noted.
    ///
    /// # Errors
    /// Fails if the database cannot be reached or refuses the statement.
    pub async fn write(&self, pool: &PgPool) -> sqlx::Result<()> {
        let mut taken = Taken { noted_by: self, uses: std::mem::take(&mut *self.lock()) };
        if taken.uses.is_empty() {
            return Ok(());
        }
        write_uses(&mut *pool.acquire().await?, &taken.uses).await?;
        taken.uses.clear();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, KeyUse>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Uses that are being written. If they are dropped before that, also because their task was cancelled, they stay noted.
struct Taken<'a> {
    noted_by: &'a KeyUses,
    uses: HashMap<Uuid, KeyUse>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut noted = self.noted_by.lock();
        for (key, before) in std::mem::take(&mut self.uses) {
            noted.entry(key).or_insert(before);
        }
    }
}

async fn write_uses(db: &mut PgConnection, uses: &HashMap<Uuid, KeyUse>) -> sqlx::Result<()> {
    let keys: Vec<Uuid> = uses.keys().copied().collect();
    let (from, on): (Vec<String>, Vec<DateTime<Utc>>) =
        uses.values().map(|last| (last.from.to_string(), last.on)).unzip();
    sqlx::query!(
        r#"
        -- write the last uses of keys: of all instances together one a minute for each key. A key that another instance
        -- writes now is skipped, so that no two of them wait for each other.
        WITH noted AS (
            SELECT k.id, u.used_from, u.used_on
              FROM unnest($1::uuid[], $2::text[], $3::timestamptz[]) AS u (id, used_from, used_on)
              JOIN api_keys k ON k.id = u.id
             WHERE k.last_used_on IS NULL OR date_trunc('minute', k.last_used_on) < date_trunc('minute', u.used_on)
               FOR NO KEY UPDATE OF k SKIP LOCKED
        )
        UPDATE api_keys k SET last_used_on = noted.used_on, last_used_from = noted.used_from::inet
          FROM noted
         WHERE k.id = noted.id
        "#,
        &keys,
        &from,
        &on,
    )
    .execute(db)
    .await
    .map(drop)
}
