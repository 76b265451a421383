//! Step 1 of 7: the API by which a caller learns who it is.

use access::gate::Identity;
use access::keys::{Kind, Role};
use access::rights::Scope;
use axum::Json;
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::request::auth::Caller;
use crate::api::request::error::Problem;

/// Who sends the request.
#[derive(Serialize, ToSchema)]
pub struct MeView {
    /// As the audit log names it, for example `key:cbt_0a1b2c3d4e5f`.
    #[schema(example = "key:cbt_0a1b2c3d4e5f")]
    actor: String,
    /// The name of the key or of the person.
    name: String,
    /// What it gives access to.
    kind: Kind,
    /// Whether it is a person with a token of the identity provider.
    is_person: bool,
    /// Its teams, with its role in each; an admin has all teams, and none here.
    teams: Vec<MembershipView>,
    /// What it permits.
    scopes: Vec<Scope>,
    /// When the key or the token ends; null = never.
    expires_on: Option<DateTime<Utc>>,
}

/// A team of the caller.
#[derive(Serialize, ToSchema)]
pub struct MembershipView {
    team_id: i64,
    role: Role,
}

/// Read who sends this request: its teams, roles and scopes.
#[utoipa::path(get, path = "/api/v1/me", tag = "keys",
    responses((status = 200, body = MeView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn show_me(caller: Caller) -> Json<MeView> {
    Json(caller.identity().into())
}

impl From<Identity> for MeView {
    fn from(identity: Identity) -> Self {
        Self {
            actor: identity.actor,
            name: identity.name,
            kind: identity.kind,
            is_person: identity.is_person,
            teams: identity.teams.into_iter().map(|(team_id, role)| MembershipView { team_id, role }).collect(),
            scopes: identity.scopes,
            expires_on: identity.expires_on,
        }
    }
}
