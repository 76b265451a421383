//! `/workflows/{id}/next`: the times that come, with what a change of the clock does to them.

use api_types::previews::{NextView, TimeView};
use askama::Template;
use axum::Router;
use axum::extract::Query;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::head::{Head, Tab};
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::frame::{Frame, Menu};
use crate::path::PathId;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/workflows/{id}/next", get(show))
}

#[derive(Deserialize)]
struct Shown {
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "workflow_next.html")]
struct NextPage {
    frame: Frame,
    head: Head,
    /// None without a schedule.
    next: Option<NextView>,
}

async fn show(api: Api, PathId(id): PathId<i64>, Query(query): Query<Shown>) -> Result<Response, Failure> {
    let head = Head::read(&api, id, Tab::Next).await?;
    let frame = Frame::read(&api, Menu::Workflows, head.workflow.name.clone(), query.done.as_deref()).await?;
    let next = match &head.workflow.cron_schedule {
        Some(_) => Some(api.get(&format!("/schedules/{id}/next?n=20")).await?),
        None => None,
    };
    show_page(&NextPage { frame, head, next })
}

/// What is special about a time.
pub(crate) fn note_words(time: &TimeView) -> &'static str {
    match time.note.as_deref() {
        Some("gap") => "the clock goes forward: a time before this one does not exist and is not run",
        Some("fold") => "the clock goes back: this local time comes twice",
        Some("paused") => "will not run: the workflow is paused",
        _ => "",
    }
}

/// The local time with its offset: `2026-11-27 09:00 +01:00`.
pub(crate) fn local_words(time: &TimeView) -> String {
    let minute = time.local.get(..16).unwrap_or(&time.local).replace('T', " ");
    format!("{minute} {}", time.offset)
}
