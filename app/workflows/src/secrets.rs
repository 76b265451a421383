//! Steps 1 and 7 of 7: the secrets of teams, encrypted at rest.
//!
//! A key of [`Keyring`], which the database does not have, encrypts the data key of each team. The data key encrypts the
//! values of the team's headers, its signing secrets, its named secrets and the URLs of its channels. A ciphertext is bound to its purpose: to the team, and a header
//! to its name and to the origin of the URL, so that a ciphertext which is moved cannot be decrypted.
//!
//! Without a key everything is stored as text, and existing text stays readable after a key was set.

mod cache;
mod channel_url;
mod cipher;
mod data_keys;
mod error;
mod header;
mod keyring;
mod purpose;
pub mod reencrypt;
mod renewal;
mod signing_secret;
mod stored_text;
pub mod team_secrets;
mod text;

pub use cache::Secrets;
pub use error::SecretError;
pub use keyring::{Keyring, KeyringError};
