//! Step 7 of 7: the API that reads occurrences, of one schedule or of all: one decision for every due time.

use api_types::occurrences::{NamedOccurrenceView, OccurrenceView};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use axum::extract::State;
use chrono::{DateTime, TimeDelta, Utc};
use ledger::occurrences::list::{self, AFTER_LAST, FIRST};
use ledger::occurrences::of_all::{self, Key, NotAKey, list_of_all};
use ledger::occurrences::{Decision, Occurrence};
use schedule::WorkflowId;
use serde::Deserialize;
use utoipa::IntoParams;
use workflows::definition::field::FieldError;
use workflows::keyset::{KeyOrder, KeysetPage};
use workflows::reasons::{self, ReasonCode};

use super::{check_visible, parse_bounds};
use crate::App;
use crate::api::request::auth::Viewer;
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::{Id, Params};
use crate::api::request::page::{self, Page, PageAnswer};
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::team::teams_of_list;
use crate::api::request::view::{ViewFrom, to_view};

/// The span of a list with ordinary fires, if the request has no `from`.
const USUAL_SPAN: TimeDelta = TimeDelta::hours(24);
/// The longest span of such a list: it reads all decisions of the span.
const LONGEST_SPAN: TimeDelta = TimeDelta::days(7);
/// A client may take so long from the first page to the last, which still belongs to the span of the first.
const LONGEST_LISTING: TimeDelta = TimeDelta::hours(1);
/// A fire may be decided a little before its time, by the clock of another machine.
const AHEAD: TimeDelta = TimeDelta::minutes(5);

/// Filters of a list of occurrences.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OccurrenceParams {
    /// Only occurrences with this decision.
    #[param(inline)]
    decision: Option<Decision>,
    /// Due at or after this time.
    from: Option<DateTime<Utc>>,
    /// Due before this time.
    to: Option<DateTime<Utc>>,
    /// Items on a page, 1 to 200.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Filters of a list of the occurrences of all schedules.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AllOccurrenceParams {
    /// Only occurrences of this team; for admins and persons of several teams.
    team_id: Option<i64>,
    /// Only occurrences with one of these decisions; repeat it for each. Without it, or with `fired`, the list has a span of
    /// 7 days at most.
    #[param(inline)]
    #[serde(default)]
    decision: Vec<Decision>,
    /// Due at or after this time. Absent: no limit; with `fired` the last 24 hours.
    from: Option<DateTime<Utc>>,
    /// Due before this time.
    to: Option<DateTime<Utc>>,
    /// Items on a page, 1 to 200.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List the occurrences of a schedule, the newest first: one decision for every due time.
#[utoipa::path(get, path = "/api/v1/schedules/{id}/occurrences", tag = "schedules",
    params(("id" = i64, Path), OccurrenceParams),
    responses((status = 200, body = Page<OccurrenceView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_occurrences(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<WorkflowId>,
    Params(params): Params<OccurrenceParams>,
) -> Result<PageAnswer, Error> {
    check_visible(&app, id, caller.team_id).await?;
    let (from, to) = parse_bounds(params.from, params.to)?;
    let (low, high) = (from.unwrap_or(FIRST), to.unwrap_or(AFTER_LAST));
    let filter = list::Filter {
        workflow_id: id,
        decision: params.decision,
        from,
        to,
        before: page::parse_cursor_within(params.cursor.as_deref(), Some(low), Some(high))?,
        limit: page::parse_limit(params.limit)?,
        now: app.clock.now(),
    };
    let mut tx = begin_read(&app).await?;
    let KeysetPage { rows, next } = list::list_occurrences(&mut tx, &filter).await.map_err(failed_read)?;
    tx.commit().await?;
    let found = KeysetPage { rows, next: next.map(|time| time.to_rfc3339()) };
    page::answer_page(found, |occurrence| occurrence.scheduled_time.to_rfc3339(), OccurrenceView::view_from).await
}

/// List the occurrences of all schedules, the latest due times first: what was missed, skipped or caught up.
#[utoipa::path(get, path = "/api/v1/occurrences", tag = "runs", params(AllOccurrenceParams),
    responses((status = 200, body = Page<NamedOccurrenceView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_all_occurrences(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Params(params): Params<AllOccurrenceParams>,
) -> Result<PageAnswer, Error> {
    let teams = teams_of_list(&caller, params.team_id)?;
    let has_own_span = params.from.is_none() && has_fires(&params.decision);
    let filter = filter_of(params, app.clock.now())?;
    // A request that names the span itself needs none in its cursor. So an instance of the version before, which reads a cursor without
    // a span only, answers the next page of most clients during a deployment.
    let from = has_own_span.then_some(filter.from);
    let mut tx = begin_read(&app).await?;
    let mut pages = Vec::with_capacity(teams.len());
    for team_id in teams {
        let filter = of_all::Filter { team_id, ..filter.clone() };
        pages.push(list_of_all(&mut tx, &filter).await.map_err(failed_read)?);
    }
    let found = KeysetPage::merge(pages, filter.limit, KeyOrder::Descending, Key::of);
    let place = move |key| Place { key, from };
    let found = KeysetPage { rows: found.rows, next: found.next.map(place) };
    let ids: BTreeSet<i64> = found.rows.iter().map(|occurrence| occurrence.workflow_id).collect();
    let names = workflows::names_of_workflows(&mut tx, &ids.into_iter().collect::<Vec<_>>()).await;
    let names = names.map_err(failed_read)?;
    tx.commit().await?;
    let view = move |occurrence: Occurrence| NamedOccurrenceView {
        workflow_name: names.get(&occurrence.workflow_id).cloned(),
        occurrence: to_view(occurrence),
    };
    page::answer_page(found, move |occurrence| place(Key::of(occurrence)), view).await
}

/// A place in the list of all schedules. Each page belongs to the span of the first.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Place {
    key: Key,
    /// The begin of the span; `None` if the request names it, if its list has no ordinary fires, or in a cursor of a version that did
    /// not keep it.
    from: Option<DateTime<Utc>>,
}

impl Place {
    /// The first place at a time.
    fn first_at(time: DateTime<Utc>) -> Self {
        Self { key: Key::first_at(time), from: None }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key)?;
        self.from.map_or(Ok(()), |from| write!(f, ",{}", from.to_rfc3339()))
    }
}

impl FromStr for Place {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        // A key has a comma itself.
        let Some((key, from)) = text.rsplit_once(',').filter(|(key, _)| key.contains(',')) else {
            return Ok(Self { key: text.parse()?, from: None });
        };
        Ok(Self { key: key.parse()?, from: Some(from.parse().map_err(|_| NotAKey)?) })
    }
}

/// Whether a list of these decisions has ordinary fires.
fn has_fires(decisions: &[Decision]) -> bool {
    decisions.is_empty() || decisions.contains(&Decision::Fired)
}

/// The filter of a request; a list with ordinary fires has a bounded span.
fn filter_of(params: AllOccurrenceParams, now: DateTime<Utc>) -> Result<of_all::Filter, Error> {
    let (from, to) = parse_bounds(params.from, params.to)?;
    let (first, end) = (from.map(Place::first_at), to.map(Place::first_at));
    let after: Option<Place> = page::parse_cursor_within(params.cursor.as_deref(), first, end)?;
    let has_fires = has_fires(&params.decision);
    let high = to.unwrap_or(AFTER_LAST).min(now + AHEAD);
    let low = from.or_else(|| after.filter(|_| has_fires).and_then(|place| place.from));
    let low = low.unwrap_or_else(|| if has_fires { high.min(now) - USUAL_SPAN } else { FIRST });
    let begun = now - after.map_or(TimeDelta::zero(), |_| LONGEST_LISTING);
    if has_fires && high.min(begun) - low > LONGEST_SPAN {
        let detail = "from must be at most 7 days before to, unless decision names only others than fired";
        return Err(FieldError::invalid("from", detail).into());
    }
    let (after, limit) = (after.map(|place| place.key), page::parse_limit(params.limit)?);
    Ok(of_all::Filter { team_id: None, decisions: params.decision, from: low, to: high, after, limit })
}

impl ViewFrom<Occurrence> for OccurrenceView {
    fn view_from(occurrence: Occurrence) -> Self {
        let is_paused = occurrence.decision == Decision::SkippedPaused;
        let may_be = |code: ReasonCode| !is_paused || code.is_of_a_pause();
        let (reason, reason_code) = reasons::as_answered(occurrence.reason, may_be);
        Self {
            id: occurrence.id,
            workflow_id: occurrence.workflow_id,
            scheduled_time: occurrence.scheduled_time,
            decision: to_view(occurrence.decision),
            reason,
            reason_code: reason_code.or(is_paused.then_some(ReasonCode::Paused)),
            revision: occurrence.revision,
            run_id: occurrence.run_id,
            lateness_s: occurrence.lateness_s,
            decided_on: occurrence.decided_on,
        }
    }
}
