//! `/workflows/new`: the form of a new workflow.

use api_types::previews::TimezonesView;
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
use crate::teams::Teams;

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
    teams: Teams,
    timezones: Vec<String>,
    explanation: Explanation,
    is_locked: bool,
}

async fn show(api: Api) -> Result<Response, Failure> {
    let frame = Frame::read(&api, Menu::Workflows, "New workflow", None).await?;
    let zones: TimezonesView = api.get("/timezones").await?;
    let page = NewPage {
        teams: Teams::read_choice(&api, &frame).await?,
        is_locked: !frame.may_edit(),
        frame,
        fields: Fields::of_new(),
        existing_headers: Vec::new(),
        timezones: zones.timezones,
        explanation: Explanation::None,
    };
    show_page(&page)
}

async fn create(api: Api, Sent(fields): Sent<Fields>) -> Act {
    let created: WorkflowView = api.post_json("/workflows", fields.body_of_new()?).await?.json()?;
    Ok(act::show_next(&format!("/workflows/{}", created.id), "created"))
}
