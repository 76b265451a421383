//! `/workflows`: the list.

use api_types::page::Page;
use api_types::workflows::WorkflowView;
use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::Response;
use axum::routing::get;
use schedule::Cron;
use serde::Deserialize;

use super::last_result;
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::drawing::strip::{self, Mark};
use crate::failure::Failure;
use crate::frame::{Frame, Menu};
use crate::query::with_query;
use crate::teams::Teams;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/workflows", get(show))
}

/// Rows on a page: few enough for 60 KB.
const ROWS: &str = "50";

/// The filters, as the address has them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Filters {
    q: String,
    state: String,
    sync: String,
    paused_by: String,
    last_result: String,
    failures_in_a_row: String,
    label: String,
    sort: String,
    team_id: String,
    cursor: String,
    done: Option<String>,
}

/// A row of the list.
struct Row {
    workflow: WorkflowView,
    /// The cron in words.
    times: Option<String>,
    strip: Vec<Mark>,
}

#[derive(Template)]
#[template(path = "workflows.html")]
struct ListPage {
    frame: Frame,
    filters: Filters,
    rows: Vec<Row>,
    /// The teams of a visitor who has several.
    teams: Teams,
    total: Option<usize>,
    next: Option<String>,
    is_filtered: bool,
}

async fn show(api: Api, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let filters: Filters = serde_html_form::from_str(query.as_deref().unwrap_or_default()).unwrap_or_default();
    let frame = Frame::read(&api, Menu::Workflows, "Workflows", filters.done.as_deref()).await?;
    let teams = Teams::read_choice(&api, &frame).await?;
    let page: Page<WorkflowView> = api.get(&filters.path_of_api()).await?;
    let next = page.next_cursor.as_deref().map(|cursor| filters.path_of_page(cursor));
    let page = ListPage {
        frame,
        is_filtered: !filters.set().is_empty(),
        teams,
        filters,
        rows: page.items.into_iter().map(Row::from).collect(),
        total: page.total,
        next,
    };
    show_page(&page)
}

impl ListPage {
    /// The name of a team; None: the visitor has one team only, and knows it.
    fn team_name(&self, id: &i64) -> Option<String> {
        (!self.teams.is_empty()).then(|| self.teams.name(id))
    }
}

impl Filters {
    fn path_of_api(&self) -> String {
        let shown = [
            ("sort", self.sort.as_str()),
            ("cursor", &self.cursor),
            ("limit", ROWS),
            ("results", "true"),
            ("total", "true"),
        ];
        let filters = last_result::as_parameters(self.set());
        with_query("/workflows", filters.into_iter().chain(shown).map(|(name, value)| (name, Some(value))))
    }

    /// The address of the page that begins at a cursor.
    fn path_of_page(&self, cursor: &str) -> String {
        let parameters = self.set().into_iter().chain([("sort", self.sort.as_str()), ("cursor", cursor)]);
        with_query("/workflows", parameters.map(|(name, value)| (name, Some(value))))
    }

    /// Whether one of the rarer fields of the form has a value.
    fn has_more(&self) -> bool {
        [&self.sync, &self.paused_by, &self.failures_in_a_row, &self.label, &self.sort]
            .into_iter()
            .any(|value| !value.is_empty())
    }

    /// The filters that have a value.
    fn set(&self) -> Vec<(&'static str, &str)> {
        let all = [
            ("q", self.q.as_str()),
            ("state", &self.state),
            ("sync", &self.sync),
            ("paused_by", &self.paused_by),
            ("last_result", &self.last_result),
            ("failures_in_a_row", &self.failures_in_a_row),
            ("label", &self.label),
            ("team_id", &self.team_id),
        ];
        all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }
}

impl From<WorkflowView> for Row {
    fn from(workflow: WorkflowView) -> Self {
        let cron = workflow.cron_schedule.as_deref().and_then(|text| Cron::parse(text).ok());
        let recent = workflow.results.as_ref().map(|results| results.recent.as_slice()).unwrap_or_default();
        Self { times: cron.map(|cron| cron.describe_times()), strip: strip::marks(recent), workflow }
    }
}

/// A share of runs, rounded down to tenths of a percent: `100 %` are all runs only, and `0 %` is none of them.
fn share_words(share: &f64) -> String {
    // A share such as 29 of 100 is a little less than 0.29 in binary.
    let tenths = (share * 1_000.0 + 1e-6).floor();
    let tenths = if *share < 1.0 { tenths.min(999.0) } else { tenths };
    if *share > 0.0 && tenths < 1.0 {
        return "< 0.1 %".to_owned();
    }
    let (percent, tenth) = ((tenths / 10.0).floor(), tenths % 10.0);
    if tenth == 0.0 { format!("{percent} %") } else { format!("{percent}.{tenth} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_only_what_has_no_exception() {
        let words = |part: f64, all: f64| share_words(&(part / all));
        assert_eq!(words(200.0, 200.0), "100 %");
        assert_eq!(words(2_015.0, 2_016.0), "99.9 %");
        assert_eq!(words(9_999_999.0, 10_000_000.0), "99.9 %");
        assert_eq!(words(199.0, 200.0), "99.5 %");
        assert_eq!(words(29.0, 100.0), "29 %");
        assert_eq!(words(2.0, 3.0), "66.6 %");
        assert_eq!(words(1.0, 300.0), "0.3 %");
        assert_eq!(words(1.0, 2_000.0), "< 0.1 %");
        assert_eq!(words(0.0, 7.0), "0 %");
    }
}
