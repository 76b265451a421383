//! Steps 1 and 7 of 7: the keys that encrypt the data keys of teams: the current one, and earlier ones, which only decrypt.

use std::collections::HashSet;
use std::fmt;

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// How many keys there are at most: the current one, and those of the backups that are kept.
const MOST_KEYS: usize = 8;

/// The keys of `CRONBOX_SECRETS_KEY`; never printed.
#[derive(Clone, Default)]
pub struct Keyring(Vec<WrappingKey>);

/// A key that encrypts data keys.
#[derive(Clone)]
pub(super) struct WrappingKey {
    /// Names it in the database.
    pub(super) id: String,
    pub(super) bytes: Zeroizing<[u8; 32]>,
}

/// Why a text is no keyring; it does not contain the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// A part is not `id:base64`.
    #[error("CRONBOX_SECRETS_KEY must be `id:base64`, with 1 to 40 letters, digits, `-` or `_` as the id")]
    Form,
    /// The decoded key has another length.
    #[error("a key of CRONBOX_SECRETS_KEY must be the base64 of 32 bytes, for example of `openssl rand -base64 32`")]
    Length,
    /// There are more than eight keys.
    #[error("CRONBOX_SECRETS_KEY must have at most 8 keys: the current one, then earlier ones")]
    TooMany,
    /// Two keys have the same id.
    #[error("the keys of CRONBOX_SECRETS_KEY must have different ids")]
    SameId,
}

impl Keyring {
    /// Parses keys `id:base64`, separated by commas or white space: first the current key, then earlier ones.
    ///
    /// # Errors
    /// Returns what is wrong, without the text.
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        let parts = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|part| !part.is_empty());
        let keys = parts.map(WrappingKey::parse).collect::<Result<Vec<_>, _>>()?;
        let different = keys.iter().map(|key| key.id.as_str()).collect::<HashSet<_>>().len();
        match keys.len() {
            0 => Err(KeyringError::Form),
            count if count > different => Err(KeyringError::SameId),
            count if count > MOST_KEYS => Err(KeyringError::TooMany),
            _ => Ok(Self(keys)),
        }
    }

    /// Returns a new random key as [`Keyring::parse`] reads it.
    ///
    /// # Errors
    /// Fails if the system has no random bytes.
    pub fn generate(id: &str) -> anyhow::Result<String> {
        let mut bytes = Zeroizing::new([0; 32]);
        rand::fill(&mut *bytes).map_err(|_| anyhow::anyhow!("the system has no random bytes"))?;
        Ok(format!("{id}:{}", STANDARD.encode(*bytes)))
    }

    /// The key that encrypts new data keys.
    pub(super) fn current(&self) -> Option<&WrappingKey> {
        self.0.first()
    }

    pub(super) fn find(&self, id: &str) -> Option<&WrappingKey> {
        self.0.iter().find(|key| key.id == id)
    }
}

impl WrappingKey {
    fn parse(part: &str) -> Result<Self, KeyringError> {
        let (id, encoded) = part.split_once(':').ok_or(KeyringError::Form)?;
        let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if id.is_empty() || id.len() > 40 || !id.chars().all(is_valid) {
            return Err(KeyringError::Form);
        }
        let decoded = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| KeyringError::Length)?);
        let bytes = <[u8; 32]>::try_from(&decoded[..]).map_err(|_| KeyringError::Length)?;
        Ok(Self { id: id.to_owned(), bytes: Zeroizing::new(bytes) })
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.id)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyring_has_one_current_key() {
        let (one, two) = (Keyring::generate("k1").unwrap(), Keyring::generate("k2").unwrap());
        let both = Keyring::parse(&format!("{two}\n{one}\n")).unwrap();
        assert_eq!(both.current().unwrap().id, "k2", "the first is the current one");
        assert!(both.find("k1").is_some() && both.find("k3").is_none());
        assert_eq!(format!("{both:?}"), r#"["k2", "k1"]"#);
        let many = (1..=9).map(|nth| Keyring::generate(&format!("k{nth}")).unwrap()).collect::<Vec<_>>();
        let earlier = Keyring::parse(&many[..8].join(",")).unwrap();
        assert!(earlier.current().unwrap().id == "k1" && earlier.find("k8").is_some());
        for (text, wrong) in [
            ("", KeyringError::Form),
            ("no key", KeyringError::Form),
            ("k 1:AAAA", KeyringError::Form),
            ("k1:AAAA", KeyringError::Length),
            (&format!("{one},{one}"), KeyringError::SameId),
            (&format!("{one},{two},{one}"), KeyringError::SameId),
            (&many.join(","), KeyringError::TooMany),
        ] {
            assert_eq!(Keyring::parse(text).unwrap_err(), wrong, "{text}");
        }
    }
}
