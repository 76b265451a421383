//! Step 1 of 7: the API that lists teams.

use access::teams::{self, Team};
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::App;
use crate::api::request::auth::Viewer;
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::Params;
use crate::api::request::page::{self, Page, PageAnswer};
use crate::api::request::read::{begin_read, failed_read};

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

impl From<Team> for ListedTeamView {
    fn from(team: Team) -> Self {
        Self { id: team.id, name: team.name, created_on: team.created_on }
    }
}
