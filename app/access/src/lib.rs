//! Who may call the API, and how much: teams, their keys and roles, their limits, the cache of keys and the rate limits.
//!
//! It belongs to no step: each request passes it before step 1 (an edit) or step 7 (a fire). This crate imports
//! `workflows` for the audit log and the signing secret of a team, and `db`. It must not import the ledger or the
//! executor, and it must not depend on axum: the API translates its answers.

mod bad_keys;
pub mod ensured_keys;
pub mod failed_logins;
pub mod gate;
pub mod hosts;
pub mod in_flight;
pub mod key;
pub mod key_text;
pub mod key_uses;
pub mod keys;
pub mod limits;
pub mod network;
pub mod people;
pub mod repeats;
pub mod restrictions;
pub mod rights;
pub mod rotation;
pub mod sessions;
pub mod signing_secrets;
pub mod teams;
