//! Steps 1 and 7 of 7: the data keys of teams, in the table `team_data_keys` and, decrypted, in the memory of a process.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use zeroize::Zeroizing;

use super::cache::{DataKey, Secrets};
use super::cipher;
use super::error::SecretError;
use super::keyring::{Keyring, WrappingKey};
use super::purpose::Purpose;

/// A row of `team_data_keys`.
pub(super) struct StoredKey {
    pub(super) team_id: i64,
    pub(super) version: i32,
    pub(super) wrapping_key: String,
    pub(super) wrapped: Vec<u8>,
    /// Whether the transaction that reads it has written it.
    pub(super) is_own: bool,
}

impl DataKey {
    /// Returns the ciphertext of a text: the version of this key, and base64.
    pub(super) fn seal_text(&self, team: i64, purpose: Purpose<'_>, plain: &str) -> Result<String, SecretError> {
        let associated = purpose.associated_data(team, self.version);
        let sealed = cipher::seal_bytes(&self.bytes, &associated, plain.as_bytes());
        let sealed = sealed.map_err(|_| SecretError::Damaged(team))?;
        Ok(format!("{}:{}", self.version, STANDARD.encode(sealed)))
    }
}

impl Secrets {
    /// Decrypts a ciphertext of [`DataKey::seal_text`]; its data key must be [loaded](Self::load_data_key).
    pub(super) fn open_text(&self, team: i64, purpose: Purpose<'_>, sealed: &str) -> Result<String, SecretError> {
        let opened = || {
            let (version, encoded) = sealed.split_once(':')?;
            let key = self.cached(team, version.parse().ok()?)?;
            let associated = purpose.associated_data(team, key.version);
            let plain = cipher::open_bytes(&key.bytes, &associated, &STANDARD.decode(encoded).ok()?)?;
            String::from_utf8(plain.to_vec()).ok()
        };
        opened().ok_or(SecretError::Damaged(team))
    }

    /// Loads the data key of a ciphertext, if this process has not decrypted it yet.
    pub(super) async fn load_data_key(
        &self,
        db: &mut PgConnection,
        team: i64,
        sealed: &str,
    ) -> Result<(), SecretError> {
        match self.missing_version(team, sealed) {
            None => Ok(()),
            Some(version) => self.read_data_key(db, team, version).await,
        }
    }

    /// As [`Self::load_data_key`], with a connection of the pool only if it is needed.
    pub(super) async fn load_from_pool(&self, pool: &PgPool, team: i64, sealed: &str) -> Result<(), SecretError> {
        match self.missing_version(team, sealed) {
            None => Ok(()),
            Some(version) => self.read_data_key(&mut *pool.acquire().await?, team, version).await,
        }
    }

    fn missing_version(&self, team: i64, sealed: &str) -> Option<i32> {
        let version = sealed.split_once(':')?.0.parse().ok()?;
        self.cached(team, version).is_none().then_some(version)
    }

    async fn read_data_key(&self, db: &mut PgConnection, team: i64, version: i32) -> Result<(), SecretError> {
        let stored = find_data_key(db, team, Some(version)).await?.ok_or(SecretError::Damaged(team))?;
        self.keep(&stored).map(drop)
    }

    /// Returns the key that encrypts new secrets of a team, and creates it if there is none; `None` if the team does not
    /// exist, or if this instance encrypts nothing.
    pub(super) async fn newest_data_key(
        &self,
        tx: &mut PgConnection,
        team: i64,
        now: DateTime<Utc>,
    ) -> Result<Option<DataKey>, SecretError> {
        let Some(current) = self.0.keyring.current().filter(|_| self.encrypts()) else { return Ok(None) };
        if let Some(stored) = find_data_key(tx, team, None).await? {
            return self.keep(&stored).map(Some);
        }
        insert_data_key(tx, team, 1, current, now).await?;
        // Another transaction may have been first.
        let stored = find_data_key(tx, team, None).await?;
        stored.map(|stored| self.keep(&stored)).transpose()
    }

    /// Decrypts a data key, and keeps it in memory. A key of this transaction is not kept: after a rollback no row has it,
    /// and what it encrypted would be lost.
    fn keep(&self, stored: &StoredKey) -> Result<DataKey, SecretError> {
        let bytes = stored.unwrap_by(&self.0.keyring)?;
        let key = DataKey { version: stored.version, bytes };
        if !stored.is_own {
            self.cache(stored.team_id, &key);
        }
        Ok(key)
    }

    /// Fails if the database has secrets that this instance cannot decrypt.
    ///
    /// # Errors
    /// Returns the key that is missing or wrong, or the failure of the database.
    pub async fn check_keys(&self, db: &mut PgConnection) -> Result<(), SecretError> {
        for stored in one_of_each_wrapping_key(db).await? {
            stored.unwrap_by(&self.0.keyring)?;
        }
        Ok(())
    }
}

impl WrappingKey {
    /// Encrypts a data key.
    pub(super) fn wrap(&self, team: i64, version: i32, data_key: &[u8; 32]) -> Result<Vec<u8>, SecretError> {
        let associated = Purpose::DataKey { wrapping_key: &self.id }.associated_data(team, version);
        cipher::seal_bytes(&self.bytes, &associated, data_key).map_err(|_| SecretError::Damaged(team))
    }
}

impl StoredKey {
    /// Decrypts the data key.
    pub(super) fn unwrap_by(&self, keyring: &Keyring) -> Result<Zeroizing<[u8; 32]>, SecretError> {
        let Self { team_id: team, version, wrapping_key, wrapped, .. } = self;
        let missing = || SecretError::MissingKey { team: *team, id: wrapping_key.clone() };
        let key = keyring.find(wrapping_key).ok_or_else(missing)?;
        let associated = Purpose::DataKey { wrapping_key }.associated_data(*team, *version);
        let bytes = cipher::open_bytes(&key.bytes, &associated, wrapped).ok_or(SecretError::Damaged(*team))?;
        <[u8; 32]>::try_from(&bytes[..]).map(Zeroizing::new).map_err(|_| SecretError::Damaged(*team))
    }
}

/// Finds the data key of this version, or the newest one.
async fn find_data_key(db: &mut PgConnection, team: i64, version: Option<i32>) -> sqlx::Result<Option<StoredKey>> {
    sqlx::query_as!(
        StoredKey,
        r#"
        -- find a data key of a team, and whether this transaction has written it
        SELECT team_id, version, wrapping_key, wrapped,
               COALESCE(xmin = pg_current_xact_id_if_assigned()::xid, false) AS "is_own!"
          FROM team_data_keys
         WHERE team_id = $1 AND ($2::integer IS NULL OR version = $2)
         ORDER BY version DESC
         LIMIT 1
        "#,
        team,
        version,
    )
    .fetch_optional(db)
    .await
}

/// Makes a data key and inserts it, unless another process is first.
pub(super) async fn insert_data_key(
    db: &mut PgConnection,
    team: i64,
    version: i32,
    wrapping_key: &WrappingKey,
    now: DateTime<Utc>,
) -> Result<(), SecretError> {
    let mut bytes = Zeroizing::new([0; 32]);
    rand::fill(&mut *bytes).map_err(|_| SecretError::Damaged(team))?;
    let wrapped = wrapping_key.wrap(team, version, &bytes)?;
    sqlx::query!(
        r#"
        -- insert a data key of a team, if the team exists and no other process is first
        INSERT INTO team_data_keys (team_id, version, wrapping_key, wrapped, created_on)
        SELECT id, $2, $3, $4, $5 FROM teams WHERE id = $1
        ON CONFLICT (team_id, version) DO NOTHING
        "#,
        team,
        version,
        wrapping_key.id,
        wrapped,
        now,
    )
    .execute(db)
    .await?;
    Ok(())
}

async fn one_of_each_wrapping_key(db: &mut PgConnection) -> sqlx::Result<Vec<StoredKey>> {
    sqlx::query_as!(
        StoredKey,
        r#"
        -- one data key of each key that encrypts some
        SELECT DISTINCT ON (wrapping_key) team_id, version, wrapping_key, wrapped, false AS "is_own!"
          FROM team_data_keys
         ORDER BY wrapping_key, team_id, version
        "#
    )
    .fetch_all(db)
    .await
}
