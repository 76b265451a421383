//! `/workflows/{id}`: the ledger, as a calendar and as the due times of a day.

use std::collections::BTreeMap;

use api_types::occurrences::{Decision, OccurrenceView};
use api_types::page::Page;
use api_types::reasons::ReasonCode;
use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::Response;
use axum::routing::get;
use chrono::{DateTime, Days, NaiveDate, Utc};
use serde::Deserialize;

use super::head::{Head, Tab};
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::drawing::calendar::{self, Calendar, Known};
use crate::failure::Failure;
use crate::frame::{Frame, Menu};
use crate::path::PathId;
use crate::query::with_query;
use crate::times;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/workflows/{id}", get(show))
}

/// Due times in an answer of the API.
const LIMIT: &str = "200";
/// Requests for all decisions of a calendar. With the two for lost times there are five at most.
const PAGES: usize = 3;

#[derive(Default, Deserialize)]
#[serde(default)]
struct DayQuery {
    day: String,
    cursor: String,
    done: Option<String>,
}

/// The due times of a day.
struct Day {
    date: NaiveDate,
    occurrences: Vec<OccurrenceView>,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "workflow_ledger.html")]
struct LedgerPage {
    frame: Frame,
    head: Head,
    calendar: Calendar,
    /// How many due times of the calendar are known.
    count: usize,
    /// From when on, if not from the first day.
    all_since: Option<DateTime<Utc>>,
    day: Option<Day>,
}

async fn show(api: Api, PathId(id): PathId<i64>, RawQuery(text): RawQuery) -> Result<Response, Failure> {
    let query: DayQuery = serde_html_form::from_str(text.as_deref().unwrap_or_default()).unwrap_or_default();
    let head = Head::read(&api, id, Tab::Ledger).await?;
    let frame = Frame::read(&api, Menu::Workflows, head.workflow.name.clone(), query.done.as_deref()).await?;
    let today = api.now().date_naive();
    let begin = calendar::begin_of(calendar::first_day(today));
    let (occurrences, known) = read_calendar(&api, id, begin).await?;
    let day = match query.day.parse() {
        Ok(date) => Some(read_day(&api, id, date, &query.cursor).await?),
        Err(_) => None,
    };
    let page = LedgerPage {
        frame,
        head,
        calendar: calendar::draw(&occurrences, known, today),
        count: occurrences.len(),
        all_since: Some(known.all_since).filter(|since| *since > begin),
        day,
    };
    show_page(&page)
}

/// The newest decisions; if there are more of them than the page reads, those of lost times besides.
async fn read_calendar(api: &Api, id: i64, begin: DateTime<Utc>) -> Result<(Vec<OccurrenceView>, Known), Failure> {
    let mut found = BTreeMap::new();
    let (mut cursor, mut all_since) = (None, begin);
    for nth in 1..=PAGES {
        let page = read_page(api, id, None, begin, cursor.as_deref()).await?;
        let oldest = page.items.last().map(|occurrence| occurrence.scheduled_time);
        found.extend(page.items.into_iter().map(|occurrence| (occurrence.scheduled_time, occurrence)));
        cursor = page.next_cursor;
        match (&cursor, oldest) {
            (None, _) => break,
            (Some(_), Some(oldest)) if nth == PAGES => all_since = oldest,
            (Some(_), _) => {}
        }
    }
    let mut lost_since = begin;
    if all_since > begin {
        for decision in ["missed", "abandoned"] {
            let page = read_page(api, id, Some(decision), begin, None).await?;
            if let (Some(_), Some(oldest)) = (&page.next_cursor, page.items.last()) {
                lost_since = lost_since.max(oldest.scheduled_time);
            }
            found.extend(page.items.into_iter().map(|occurrence| (occurrence.scheduled_time, occurrence)));
        }
    }
    Ok((found.into_values().collect(), Known { all_since, lost_since }))
}

async fn read_page(
    api: &Api,
    id: i64,
    decision: Option<&str>,
    from: DateTime<Utc>,
    cursor: Option<&str>,
) -> Result<Page<OccurrenceView>, Failure> {
    let from = times::for_machines(&from);
    let parameters = [("decision", decision), ("from", Some(&*from)), ("limit", Some(LIMIT)), ("cursor", cursor)];
    api.get(&with_query(&format!("/schedules/{id}/occurrences"), parameters)).await
}

async fn read_day(api: &Api, id: i64, date: NaiveDate, cursor: &str) -> Result<Day, Failure> {
    let from = times::for_machines(&calendar::begin_of(date));
    let to = times::for_machines(&calendar::begin_of(date.checked_add_days(Days::new(1)).unwrap_or(date)));
    let parameters = [("from", Some(&*from)), ("to", Some(&*to)), ("limit", Some(LIMIT)), ("cursor", Some(cursor))];
    let page: Page<OccurrenceView> = api.get(&with_query(&format!("/schedules/{id}/occurrences"), parameters)).await?;
    let next = page.next_cursor.map(|cursor| {
        let day = date.to_string();
        with_query(&format!("/workflows/{id}"), [("day", Some(&*day)), ("cursor", Some(&*cursor))])
    });
    Ok(Day { date, occurrences: page.items, next })
}

/// Why it was decided so, in a sentence.
fn reason(occurrence: &OccurrenceView) -> String {
    match (&occurrence.reason, occurrence.reason_code) {
        (Some(text), Some(ReasonCode::Paused)) => format!("{}: {text}", ReasonCode::Paused.sentence()),
        (Some(sentence), _) => sentence.clone(),
        (None, Some(code)) if !code.has_fact() => code.sentence().to_owned(),
        (None, _) => String::new(),
    }
}
