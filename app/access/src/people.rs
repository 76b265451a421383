//! Steps 1 and 7 of 7: people who sign in with a provider of OIDC. A token says who they are, their groups say
//! what they may do.
//!
//! | file | question |
//! |---|---|
//! | `token.rs` | is the token what it says, for this app and for now? |
//! | `jwks.rs` | with which key did the provider sign it? |
//! | `person.rs` | who is it? |
//! | `groups.rs` | which roles do the groups give? |
//! | `memberships.rs` | which teams are these? |
//! | `signed_in.rs` | who signed in some seconds ago, and where? |
//! | `owner.rs` | which team owns an object? |
//!
//! Nothing here calls the provider: the app fetches its keys.

pub mod groups;
pub mod jwks;
pub mod memberships;
pub mod owner;
pub mod person;
pub mod signed_in;
pub mod token;
