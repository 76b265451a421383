//! Step 1 of 7: the API that lists and renames teams.

use access::teams::{self, Team, TeamDeletion};
use api_types::teams::ListedTeamView;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use workflows::definition::field;

use crate::App;
use crate::api::request::auth::{Admin, Viewer};
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::{Body, Id, Params, Trace};
use crate::api::request::page::{self, Page, PageAnswer};
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::view::{ViewFrom, to_view};

/// What changes of a team.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TeamPatchBody {
    /// Unique; one line, at most 200 characters.
    name: String,
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
    page::answer_page(found, |team| team.id, ListedTeamView::view_from).await
}

/// Rename a team. Its keys, workflows and signatures stay as they are.
#[utoipa::path(patch, path = "/api/v1/teams/{id}", tag = "keys", params(("id" = i64, Path)), request_body = TeamPatchBody,
    responses((status = 200, body = ListedTeamView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn rename_team(
    State(app): State<App>,
    Admin(caller): Admin,
    Id(id): Id<i64>,
    Trace(trace): Trace,
    Body(body): Body<TeamPatchBody>,
) -> Result<Json<ListedTeamView>, Error> {
    field::check_name("name", &body.name)?;
    let edit = caller.edit_at(app.clock.now(), trace);
    let mut tx = db::begin_transaction(&app.pools.edits).await?;
    let renamed = teams::rename_team(&mut tx, id, &body.name, &edit).await?.ok_or_else(Error::not_found)?;
    tx.commit().await?;
    Ok(Json(to_view(renamed)))
}

/// Delete a team that has no workflow, with its keys, secrets, limits, freezes and bulk operations. Export it first. The audit
/// log keeps its entries, and what became of its runs is kept as long as for every deleted workflow.
#[utoipa::path(delete, path = "/api/v1/teams/{id}", tag = "keys", params(("id" = i64, Path)),
    responses((status = 204), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete_team(
    State(app): State<App>,
    Admin(caller): Admin,
    Id(id): Id<i64>,
    Trace(trace): Trace,
) -> Result<StatusCode, Error> {
    let edit = caller.edit_at(app.clock.now(), trace);
    let mut tx = db::begin_transaction(&app.pools.edits).await?;
    match teams::delete_team(&mut tx, id, &edit).await? {
        TeamDeletion::Deleted => tx.commit().await?,
        TeamDeletion::NotFound => return Err(Error::not_found()),
        TeamDeletion::HasWorkflows => {
            let detail = "the team has workflows: archive and then delete them, for example with POST /api/v1/bulk";
            return Err(Error::conflict("team_not_empty", detail));
        }
    }
    app.gate.forget_all();
    app.host_lists.forget_team(id).await;
    Ok(StatusCode::NO_CONTENT)
}

impl ViewFrom<Team> for ListedTeamView {
    fn view_from(team: Team) -> Self {
        Self { id: team.id, name: team.name, created_on: team.created_on }
    }
}
