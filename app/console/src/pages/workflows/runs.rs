//! `/workflows/{id}/runs`: its runs, the newest first.

use api_types::page::Page;
use api_types::runs::RunView;
use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::head::{Head, Tab};
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::frame::{Frame, Menu};
use crate::path::PathId;
use crate::query::with_query;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/workflows/{id}/runs", get(show))
}

/// Rows on a page.
const ROWS: &str = "50";

#[derive(Default, Deserialize)]
#[serde(default)]
struct Filters {
    /// A state, or `bad`: failed, timed out or abandoned.
    state: String,
    cursor: String,
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "workflow_runs.html")]
struct RunsPage {
    frame: Frame,
    head: Head,
    filters: Filters,
    runs: Vec<RunView>,
    next: Option<String>,
}

async fn show(api: Api, PathId(id): PathId<i64>, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let filters: Filters = serde_html_form::from_str(query.as_deref().unwrap_or_default()).unwrap_or_default();
    let head = Head::read(&api, id, Tab::Runs).await?;
    let frame = Frame::read(&api, Menu::Workflows, head.workflow.name.clone(), filters.done.as_deref()).await?;
    let page: Page<RunView> = api.get(&filters.path_of_api(id)).await?;
    let next = page.next_cursor.map(|cursor| {
        let parameters = [("state", Some(&*filters.state)), ("cursor", Some(&*cursor))];
        with_query(&format!("/workflows/{id}/runs"), parameters)
    });
    show_page(&RunsPage { frame, head, filters, runs: page.items, next })
}

impl Filters {
    fn path_of_api(&self, id: i64) -> String {
        let states: &[&str] = match &*self.state {
            "" => &[],
            "bad" => &["failed", "timed_out", "abandoned"],
            one => &[one],
        };
        let id = id.to_string();
        let shown = [("workflow_id", &*id), ("limit", ROWS), ("cursor", &self.cursor)];
        let parameters = states.iter().map(|state| ("state", *state)).chain(shown);
        with_query("/runs", parameters.map(|(name, value)| (name, Some(value))))
    }
}
