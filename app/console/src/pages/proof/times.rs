//! `/proof/times`: due times by what was decided about them.

use api_types::occurrences::{Decision, NamedOccurrenceView};
use api_types::page::Page;
use api_types::reasons::ReasonCode;
use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::frame::{Frame, Menu};
use crate::period::{self, Period};
use crate::query::with_query;
use crate::teams::Teams;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/proof/times", get(show))
}

/// Rows on a page.
const ROWS: &str = "50";

/// The decisions: the value in an address, and the words.
const DECISIONS: [(&str, &str); 7] = [
    ("missed", "missed"),
    ("abandoned", "abandoned"),
    ("skipped_overlap", "skipped: overlap"),
    ("skipped_paused", "skipped: paused or frozen"),
    ("caught_up", "caught up later"),
    ("backfilled", "backfilled"),
    ("fired", "fired"),
];

/// The filters, as the address has them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Filters {
    decision: Vec<String>,
    hours: String,
    from: String,
    to: String,
    team_id: String,
    cursor: String,
}

#[derive(Template)]
#[template(path = "proof_times.html")]
struct TimesPage {
    frame: Frame,
    filters: Filters,
    teams: Teams,
    times: Vec<NamedOccurrenceView>,
    next: Option<String>,
}

async fn show(api: Api, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let filters: Filters = serde_html_form::from_str(query.as_deref().unwrap_or_default()).unwrap_or_default();
    let frame = Frame::read(&api, Menu::Proof, "Due times", None).await?;
    let period = Period::parse(&filters.hours, &filters.from, &filters.to, api.now())?;
    let path = filters.path("/occurrences", period, &[("cursor", &filters.cursor), ("limit", ROWS)]);
    let page: Page<NamedOccurrenceView> = api.get(&path).await?;
    let next = page.next_cursor.as_deref();
    let page = TimesPage {
        teams: Teams::read_choice(&api, &frame).await?,
        frame,
        next: next.map(|cursor| filters.path("/proof/times", period, &[("cursor", cursor)])),
        filters,
        times: page.items,
    };
    show_page(&page)
}

impl Filters {
    /// The same query for the API and for the address. It names the begin of the period, which must stay the same.
    fn path(&self, path: &str, period: Period, more: &[(&'static str, &str)]) -> String {
        let (from, to) = (period.begin_text(), period.end_text());
        let others = [("from", from.as_str()), ("to", &to), ("team_id", &self.team_id)];
        let decisions = self.decision.iter().map(|decision| ("decision", decision.as_str()));
        let parameters = decisions.chain(others).chain(more.iter().copied());
        with_query(path, parameters.map(|(name, value)| (name, Some(value))))
    }

    /// Whether a decision is chosen.
    fn has_decision(&self, decision: &&str) -> bool {
        self.decision.iter().any(|chosen| chosen == decision)
    }
}

/// Whether a backfill can run the time.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "templates pass references")]
fn is_not_run(decision: &Decision) -> bool {
    match decision {
        Decision::SkippedOverlap | Decision::SkippedPaused | Decision::Missed | Decision::Abandoned => true,
        Decision::Fired | Decision::CaughtUp | Decision::Backfilled => false,
    }
}

/// Why it was decided so.
fn reason_of(time: &NamedOccurrenceView) -> Option<String> {
    let text = time.occurrence.reason.as_deref();
    match (time.occurrence.reason_code, text) {
        (Some(ReasonCode::Paused), Some(text)) => Some(format!("the workflow was paused: {text}")),
        (Some(code), None) if !code.has_fact() => Some(code.sentence().to_owned()),
        _ => text.map(str::to_owned),
    }
}
