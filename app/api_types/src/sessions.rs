//! Sessions of the console, and links that sign in once.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A session of the console that has not ended.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct SessionView {
    /// Identity.
    pub id: Uuid,
    /// The name of the key, or of the person.
    pub name: String,
    /// Whether a person signed in; otherwise a key did.
    pub is_person: bool,
    /// The address of the client that signed in.
    #[schema(value_type = Option<String>)]
    pub source_address: Option<IpAddr>,
    /// When it began.
    pub created_on: DateTime<Utc>,
    /// When it ends by itself.
    pub expires_on: DateTime<Utc>,
}

/// A link that signs in to the console once, with the key of the request.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct SignInLinkView {
    /// Its path; put the address of the service before it.
    pub path: String,
    /// When it stops to work.
    pub expires_on: DateTime<Utc>,
}
