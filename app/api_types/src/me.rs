//! Who sends the request.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::keys::{Kind, Role, Scope};

/// Who sends the request.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct MeView {
    /// As the audit log names it, for example `key:cbt_0a1b2c3d4e5f`.
    #[schema(example = "key:cbt_0a1b2c3d4e5f")]
    pub actor: String,
    /// The name of the key or of the person.
    pub name: String,
    /// What it gives access to.
    pub kind: Kind,
    /// Whether it is a person with a token of the identity provider.
    pub is_person: bool,
    /// Its teams, with its role in each; an admin has all teams, and none here.
    pub teams: Vec<MembershipView>,
    /// What it permits.
    pub scopes: Vec<Scope>,
    /// When the key or the token ends; null = never.
    pub expires_on: Option<DateTime<Utc>>,
}

/// A team of the caller.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct MembershipView {
    /// The team.
    pub team_id: i64,
    /// The role.
    pub role: Role,
}
