//! Steps 1 and 7 of 7: the secrets of teams, encrypted at rest.
//!
//! A key of [`Keyring`], which only the environment has, encrypts the data key of each team. The data key encrypts the
//! values of the team's headers and its signing secrets. A ciphertext is bound to its purpose: to the team, and a header
//! to its name and to the origin of the URL, so that a ciphertext which is moved cannot be decrypted.
//!
//! Without a key everything is stored as text, and existing text stays readable after a key was set.

mod cipher;
mod data_keys;
mod header;
mod keyring;
mod purpose;
pub mod reencrypt;
mod signing_secret;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

pub use keyring::{Keyring, KeyringError};

use data_keys::DataKey;

/// Encrypts and decrypts the secrets of teams; clones share the decrypted data keys.
#[derive(Clone, Default)]
pub struct Secrets(Arc<Inner>);

#[derive(Default)]
struct Inner {
    keyring: Keyring,
    /// Whether new secrets are encrypted, if there is a key.
    encrypts: bool,
    /// Committed data keys by team and version. A version never changes, so none becomes stale.
    data_keys: RwLock<HashMap<(i64, i32), DataKey>>,
}

/// Why a secret cannot be encrypted or decrypted.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The data key of the team is encrypted with a key that this instance does not have.
    #[error(
        "the secrets of team {team} are encrypted with the key `{id}`, which this instance does not have: set CRONBOX_SECRETS_KEY"
    )]
    MissingKey {
        /// The team.
        team: i64,
        /// The id of the key.
        id: String,
    },
    /// The ciphertext does not belong to this place, or a key is another one than its id says.
    #[error(
        "a secret of team {0} cannot be decrypted: it was moved or changed, or a key of CRONBOX_SECRETS_KEY is wrong"
    )]
    Damaged(i64),
    /// The database cannot be reached or refuses a statement.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Secrets {
    /// Secrets that these keys encrypt. Unless `encrypts`, the keys only decrypt, and new secrets are stored as text.
    #[must_use]
    pub fn new(keyring: Keyring, encrypts: bool) -> Self {
        Self(Arc::new(Inner { keyring, encrypts, data_keys: RwLock::default() }))
    }

    /// Whether new secrets are encrypted.
    #[must_use]
    pub fn encrypts(&self) -> bool {
        self.0.encrypts && self.0.keyring.current().is_some()
    }

    fn cached(&self, team: i64, version: i32) -> Option<DataKey> {
        let keys = self.0.data_keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.get(&(team, version)).cloned()
    }

    fn cache(&self, team: i64, key: &DataKey) {
        let mut keys = self.0.data_keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.insert((team, key.version), key.clone());
    }
}
