//! Step 1 of 7: the API by which a caller learns who it is.

use access::gate::Identity;
use api_types::me::{MeView, MembershipView};
use axum::Json;

use crate::api::request::auth::Caller;
use crate::api::request::error::Problem;
use crate::api::request::view::{ViewFrom, to_view};

/// Read who sends this request: its teams, roles and scopes.
#[utoipa::path(get, path = "/api/v1/me", tag = "keys",
    responses((status = 200, body = MeView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn show_me(caller: Caller) -> Json<MeView> {
    Json(to_view(caller.identity()))
}

impl ViewFrom<Identity> for MeView {
    fn view_from(identity: Identity) -> Self {
        Self {
            actor: identity.actor,
            name: identity.name,
            kind: to_view(identity.kind),
            is_person: identity.is_person,
            teams: identity
                .teams
                .into_iter()
                .map(|(team_id, role)| MembershipView { team_id, role: to_view(role) })
                .collect(),
            scopes: identity.scopes.into_iter().map(to_view).collect(),
            expires_on: identity.expires_on,
        }
    }
}
