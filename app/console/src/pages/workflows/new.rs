//! `/workflows/new`: the form of a new workflow.

use api_types::keys::Kind;
use api_types::page::Page;
use api_types::previews::TimezonesView;
use api_types::teams::ListedTeamView;
use api_types::workflows::WorkflowView;
use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::get;

use super::explanation::Explanation;
use super::fields::Fields;
use crate::act::{self, Act};
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::form::Sent;
use crate::frame::{Frame, Menu};

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/workflows/new", get(show).post(create))
}

#[derive(Template)]
#[template(path = "workflow_new.html")]
struct NewPage {
    frame: Frame,
    fields: Fields,
    existing_headers: Vec<String>,
    /// The teams to choose from; empty if there is no choice.
    teams: Vec<(i64, String)>,
    timezones: Vec<String>,
    explanation: Explanation,
    is_locked: bool,
}

async fn show(api: Api) -> Result<Response, Failure> {
    let frame = Frame::read(&api, Menu::Workflows, "New workflow", None).await?;
    let zones: TimezonesView = api.get("/timezones").await?;
    let page = NewPage {
        teams: teams(&api, &frame).await?,
        is_locked: !frame.may_edit(),
        frame,
        fields: Fields::of_new(),
        existing_headers: Vec::new(),
        timezones: zones.timezones,
        explanation: Explanation::None,
    };
    show_page(&page)
}

/// The teams of an admin, and of a person with several ones.
async fn teams(api: &Api, frame: &Frame) -> Result<Vec<(i64, String)>, Failure> {
    if frame.me.kind != Kind::Admin && frame.me.teams.len() < 2 {
        return Ok(Vec::new());
    }
    let page: Page<ListedTeamView> = api.get("/teams?limit=200").await?;
    Ok(page.items.into_iter().map(|team| (team.id, team.name)).collect())
}

async fn create(api: Api, Sent(fields): Sent<Fields>) -> Act {
    let created: WorkflowView = api.post_json("/workflows", fields.body_of_new()?).await?.json()?;
    Ok(act::show_next(&format!("/workflows/{}", created.id), "created"))
}
