//! `/backfills`: the list.

use api_types::backfills::BackfillView;
use api_types::page::Page;
use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::progress::Progress;
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::frame::{Frame, Menu};
use crate::query::with_query;
use crate::teams::Teams;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/backfills", get(show))
}

/// Rows on a page.
const ROWS: &str = "50";

/// The filters, as the address has them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Filters {
    state: String,
    workflow_id: String,
    team_id: String,
    cursor: String,
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "backfills.html")]
struct ListPage {
    frame: Frame,
    filters: Filters,
    teams: Teams,
    rows: Vec<Progress>,
    next: Option<String>,
    is_filtered: bool,
}

async fn show(api: Api, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let filters: Filters = serde_html_form::from_str(query.as_deref().unwrap_or_default()).unwrap_or_default();
    let frame = Frame::read(&api, Menu::Backfills, "Backfills", filters.done.as_deref()).await?;
    let page: Page<BackfillView> = api.get(&filters.path(&[("cursor", &filters.cursor), ("limit", ROWS)])).await?;
    let page = ListPage {
        teams: Teams::read_choice(&api, &frame).await?,
        frame,
        is_filtered: filters.set().iter().any(|(_, value)| !value.is_empty()),
        next: page.next_cursor.as_deref().map(|cursor| filters.path(&[("cursor", cursor)])),
        filters,
        rows: page.items.into_iter().map(Progress::from).collect(),
    };
    show_page(&page)
}

impl Filters {
    fn set(&self) -> [(&'static str, &str); 3] {
        [("state", &self.state), ("workflow_id", &self.workflow_id), ("team_id", &self.team_id)]
    }

    /// The same path for the API and for the address.
    fn path(&self, more: &[(&'static str, &str)]) -> String {
        let parameters = self.set().into_iter().chain(more.iter().copied());
        with_query("/backfills", parameters.map(|(name, value)| (name, Some(value))))
    }
}
