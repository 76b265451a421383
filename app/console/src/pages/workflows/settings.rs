//! `/workflows/{id}/settings`: all fields of a workflow, and what another edit changed meanwhile.

mod conflict;

use api_types::previews::TimezonesView;
use askama::Template;
use axum::Router;
use axum::extract::Query;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::explanation::{Explanation, explain};
use super::fields::Fields;
use super::head::{Head, Tab};
use crate::act::{self, Act};
use crate::answer::show_page;
use crate::api::{Api, Console, Write};
use crate::failure::Failure;
use crate::form::Sent;
use crate::frame::{Frame, Menu};
use crate::path::PathId;
use crate::teams::Teams;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/workflows/{id}/settings", get(show).post(save))
}

#[derive(Deserialize)]
struct Shown {
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "workflow_settings.html")]
struct SettingsPage {
    frame: Frame,
    head: Head,
    fields: Fields,
    /// The fields of an existing workflow have headers with values that no page has.
    existing_headers: Vec<String>,
    /// Empty: the team of a workflow does not change.
    teams: Teams,
    timezones: Vec<String>,
    explanation: Explanation,
    is_locked: bool,
}

async fn show(api: Api, PathId(id): PathId<i64>, Query(query): Query<Shown>) -> Result<Response, Failure> {
    let head = Head::read(&api, id, Tab::Settings).await?;
    let frame = Frame::read(&api, Menu::Workflows, head.workflow.name.clone(), query.done.as_deref()).await?;
    let mut fields = Fields::of_workflow(&head.workflow);
    fields.seen = serde_json::to_string(&fields.shown()?).map_err(|error| Failure::Broken(error.to_string()))?;
    let zones: TimezonesView = api.get("/timezones").await?;
    let page = SettingsPage {
        is_locked: !frame.may_edit() || head.is_archived() || head.workflow.managed_by.is_some(),
        explanation: explain(&api, &fields.cron_schedule, &fields.timezone).await?,
        existing_headers: fields.header_name.clone(),
        teams: Teams::default(),
        timezones: zones.timezones,
        fields,
        frame,
        head,
    };
    show_page(&page)
}

async fn save(api: Api, PathId(id): PathId<i64>, Sent(fields): Sent<Fields>) -> Act {
    let seen = fields.seen()?;
    let shown = format!("/workflows/{id}/settings");
    let Some(patch) = fields.patch(&seen)? else { return Ok(act::show_next(&shown, "saved")) };
    let write =
        Write { body: Some(patch), if_match: Some(&fields.etag), content_type: Some("application/merge-patch+json") };
    match api.send(Method::PATCH, &format!("/workflows/{id}"), write).await {
        Ok(_) => Ok(act::show_next(&shown, "saved")),
        Err(Failure::Refused(StatusCode::PRECONDITION_FAILED, _)) => conflict::answer(&api, id, &fields, &seen).await,
        Err(failure) => Err(failure.into()),
    }
}
