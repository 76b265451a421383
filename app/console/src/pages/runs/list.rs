//! `/runs`: the list.

use api_types::page::Page;
use api_types::runs::RunView;
use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::states::STATES;
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::frame::{Frame, Menu};
use crate::period::{self, Period};
use crate::query::with_query;
use crate::teams::Teams;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/runs", get(show))
}

/// Rows on a page.
const ROWS: &str = "50";

/// Why runs exist: the value in an address, and the words.
const TRIGGERS: [(&str, &str); 5] = [
    ("schedule", "on schedule"),
    ("manual", "manual"),
    ("catch_up", "catch-up"),
    ("backfill", "backfill"),
    ("retry", "retry"),
];

/// The filters, as the address has them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Filters {
    state: Vec<String>,
    trigger: String,
    hours: String,
    from: String,
    to: String,
    workflow_id: String,
    team_id: String,
    cursor: String,
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "runs.html")]
struct ListPage {
    frame: Frame,
    filters: Filters,
    teams: Teams,
    runs: Vec<RunView>,
    total: Option<usize>,
    next: Option<String>,
    is_filtered: bool,
    /// What acts on all that match repeat: a bulk operation has its own fields.
    selected_by: Vec<(&'static str, String)>,
}

async fn show(api: Api, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let filters: Filters = serde_html_form::from_str(query.as_deref().unwrap_or_default()).unwrap_or_default();
    let frame = Frame::read(&api, Menu::Runs, "Runs", filters.done.as_deref()).await?;
    let period = Period::parse(&filters.hours, &filters.from, &filters.to, api.now())?;
    let page: Page<RunView> = api.get(&filters.path_of_api(period)).await?;
    let page = ListPage {
        teams: Teams::read_choice(&api, &frame).await?,
        frame,
        is_filtered: filters.is_set(),
        next: page.next_cursor.as_deref().map(|cursor| filters.path_of_page(period, cursor)),
        selected_by: filters.owned(period),
        filters,
        runs: page.items,
        total: page.total,
    };
    show_page(&page)
}

impl Filters {
    /// The filters that have a value, with the bounds of the period.
    fn owned(&self, period: Period) -> Vec<(&'static str, String)> {
        let states = self.state.iter().map(|state| ("state", state.clone()));
        let others = [
            ("trigger", self.trigger.clone()),
            ("workflow_id", self.workflow_id.clone()),
            ("team_id", self.team_id.clone()),
            ("from", period.begin_text()),
            ("to", period.end_text()),
        ];
        states.chain(others).filter(|(_, value)| !value.is_empty()).collect()
    }

    fn path(&self, period: Period, more: &[(&'static str, &str)]) -> String {
        let owned = self.owned(period);
        let set = owned.iter().map(|(name, value)| (*name, value.as_str()));
        with_query("/runs", set.chain(more.iter().copied()).map(|(name, value)| (name, Some(value))))
    }

    fn path_of_api(&self, period: Period) -> String {
        // To count runs that are rare, the API would read those of all days.
        let total = if period.from.is_some() || !self.is_set() { "true" } else { "" };
        self.path(period, &[("cursor", &self.cursor), ("limit", ROWS), ("total", total)])
    }

    /// The address of the page that begins at a cursor. It names the begin of the period, which must stay the same.
    fn path_of_page(&self, period: Period, cursor: &str) -> String {
        self.path(period, &[("cursor", cursor)])
    }

    fn is_set(&self) -> bool {
        let texts = [&self.trigger, &self.hours, &self.from, &self.to, &self.workflow_id, &self.team_id];
        !self.state.is_empty() || texts.iter().any(|text| !text.is_empty())
    }

    /// Whether a state is chosen.
    fn has_state(&self, state: &&str) -> bool {
        self.state.iter().any(|chosen| chosen == state)
    }
}
