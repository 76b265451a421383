//! Steps 1 and 7 of 7: the keys that a process has in memory.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use zeroize::Zeroizing;

use super::keyring::Keyring;

/// Encrypts and decrypts the secrets of teams; clones share the decrypted data keys.
#[derive(Clone, Default)]
pub struct Secrets(pub(super) Arc<Inner>);

#[derive(Default)]
pub(super) struct Inner {
    pub(super) keyring: Keyring,
    /// Whether new secrets are encrypted, if there is a key.
    encrypts: bool,
    /// Committed data keys by team and version. A version never changes, so none becomes stale.
    data_keys: RwLock<HashMap<(i64, i32), DataKey>>,
}

/// The key of a team, decrypted.
#[derive(Clone)]
pub(super) struct DataKey {
    pub(super) version: i32,
    pub(super) bytes: Zeroizing<[u8; 32]>,
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

    pub(super) fn cached(&self, team: i64, version: i32) -> Option<DataKey> {
        let keys = self.0.data_keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.get(&(team, version)).cloned()
    }

    pub(super) fn cache(&self, team: i64, key: &DataKey) {
        let mut keys = self.0.data_keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.insert((team, key.version), key.clone());
    }
}
