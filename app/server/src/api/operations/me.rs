//! Step 1 of 7: the API by which a caller learns who it is, and its teams.

use access::gate::Identity;
use access::keys::{Kind, Role};
use access::rights::Scope;
use access::teams::{self, Team};
use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::App;
use crate::api::request::auth::{Caller, Viewer};
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::Params;
use crate::api::request::page::{self, Page, PageAnswer};
use crate::api::request::read::{begin_read, failed_read};

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

/// A team in a list.
#[derive(Serialize, ToSchema)]
pub struct ListedTeamView {
    id: i64,
    name: String,
    created_on: DateTime<Utc>,
}

/// Which page of the list of teams.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TeamParams {
    /// Items on a page, 1 to 200.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Read who sends this request: its teams, roles and scopes.
#[utoipa::path(get, path = "/api/v1/me", tag = "keys",
    responses((status = 200, body = MeView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn show_me(caller: Caller) -> Json<MeView> {
    Json(caller.identity().into())
}

/// List teams: an admin's key sees all of them, other callers their own.
#[utoipa::path(get, path = "/api/v1/teams", tag = "keys", params(TeamParams),
    responses((status = 200, body = Page<ListedTeamView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_teams(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Params(params): Params<TeamParams>,
) -> Result<PageAnswer, Error> {
    let limit = page::parse_limit(params.limit)?;
    let after = page::parse_cursor(params.cursor.as_deref())?;
    let own = caller.team_id.map(|_| caller.identity().teams.into_iter().map(|(team, _)| team).collect::<Vec<_>>());
    let mut tx = begin_read(&app).await?;
    let found = teams::list_teams(&mut tx, own.as_deref(), after, limit).await.map_err(failed_read)?;
    tx.commit().await?;
    page::answer_page(found, |team| team.id, ListedTeamView::from).await
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

impl From<Team> for ListedTeamView {
    fn from(team: Team) -> Self {
        Self { id: team.id, name: team.name, created_on: team.created_on }
    }
}
