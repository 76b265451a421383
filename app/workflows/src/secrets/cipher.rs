//! Steps 1 and 7 of 7: AES-256-GCM with a random nonce. A ciphertext is the nonce, the encrypted bytes and the tag.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::error::Unspecified;
use zeroize::Zeroizing;

/// Encrypts bytes, and authenticates them together with `associated`.
pub(super) fn seal_bytes(key: &[u8; 32], associated: &str, plain: &[u8]) -> Result<Vec<u8>, Unspecified> {
    let key = RandomizedNonceKey::new(&AES_256_GCM, key)?;
    let mut bytes = plain.to_vec();
    let nonce = key.seal_in_place_append_tag(Aad::from(associated.as_bytes()), &mut bytes)?;
    Ok([nonce.as_ref().as_slice(), bytes.as_slice()].concat())
}

/// Decrypts bytes; `None` if they, the key or `associated` are not those of the encryption.
pub(super) fn open_bytes(key: &[u8; 32], associated: &str, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (nonce, rest) = sealed.split_at_checked(NONCE_LEN)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let mut bytes = Zeroizing::new(rest.to_vec());
    let key = RandomizedNonceKey::new(&AES_256_GCM, key).ok()?;
    let length = key.open_in_place(nonce, Aad::from(associated.as_bytes()), &mut bytes).ok()?.len();
    bytes.truncate(length);
    Some(bytes)
}
