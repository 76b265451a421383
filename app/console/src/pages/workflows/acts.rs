//! Acts on one workflow: run it, pause and resume it, archive it, backfill it.

use api_types::backfills::{BackfillView, DryRunView};
use api_types::occurrences::OccurrenceView;
use api_types::page::Page;
use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::post;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::act::{self, Act};
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::failure::{ActFailure, Failure};
use crate::form::{Sent, parse_time};
use crate::path::PathId;
use crate::query::with_query;

pub(super) fn routes() -> Router<Console> {
    Router::new()
        .route("/workflows/{id}/fire", post(fire))
        .route("/workflows/{id}/pause", post(pause))
        .route("/workflows/{id}/resume", post(resume))
        .route("/workflows/{id}/archive", post(archive))
        .route("/workflows/{id}/backfill/preview", post(preview_backfill))
        .route("/workflows/{id}/backfill", post(backfill))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PauseFields {
    reason: String,
    until: String,
}

/// The span to backfill. `end` is the last minute that may be selected, as a calendar names it.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct BackfillFields {
    start: String,
    end: String,
    only: String,
    order: String,
    timing: String,
    max_concurrent: String,
}

/// What a backfill would do.
#[derive(Template)]
#[template(path = "backfill_preview.html")]
struct Preview {
    id: i64,
    total: usize,
    first: Vec<DateTime<Utc>>,
    fields: BackfillFields,
    start: DateTime<Utc>,
    end: DateTime<Utc>,
    /// Times of the span that a pause or a freeze has skipped; `None`: it does not leave them out.
    left_out: Option<LeftOut>,
}

/// Times that a preview names.
const NAMED: usize = 10;
/// Times that were skipped, of which a preview counts no more.
const MOST_LEFT_OUT: &str = "200";

/// How many times a backfill leaves out.
struct LeftOut {
    count: usize,
    /// Whether there are or may be more: the API lists 200 at once, and passes over 5,000 decisions for them, also if it finds none.
    is_more: bool,
}

async fn fire(api: Api, PathId(id): PathId<i64>) -> Act {
    let run: Value = api.post(&format!("/schedules/{id}:fire")).await?.json()?;
    let run = run["run_id"].as_str().map(|run| format!("/runs/{run}"));
    Ok(act::show_next(&run.unwrap_or_else(|| format!("/workflows/{id}/runs")), "fired"))
}

async fn pause(api: Api, PathId(id): PathId<i64>, Sent(fields): Sent<PauseFields>) -> Act {
    let until = parse_time("until", &fields.until)?;
    let reason = Some(fields.reason.trim()).filter(|reason| !reason.is_empty());
    api.post_json(&format!("/workflows/{id}:pause"), json!({ "reason": reason, "until": until })).await?;
    Ok(act::show_next(&format!("/workflows/{id}"), "paused"))
}

async fn resume(api: Api, PathId(id): PathId<i64>) -> Act {
    api.post(&format!("/workflows/{id}:resume")).await?;
    Ok(act::show_next(&format!("/workflows/{id}"), "resumed"))
}

async fn archive(api: Api, PathId(id): PathId<i64>) -> Act {
    api.post(&format!("/workflows/{id}:archive")).await?;
    Ok(act::show_next(&format!("/workflows/{id}"), "archived"))
}

async fn preview_backfill(
    api: Api,
    PathId(id): PathId<i64>,
    Sent(fields): Sent<BackfillFields>,
) -> Result<Response, ActFailure> {
    let (start, end) = fields.span(api.now())?;
    let body = fields.body(start, end, true)?;
    let found: DryRunView = api.post_json(&format!("/schedules/{id}:backfill"), body).await?.json()?;
    let first = found.times.into_iter().take(NAMED).collect();
    let left_out = match fields.leaves_out_skipped() {
        true => Some(count_skipped(&api, id, start, end).await?),
        false => None,
    };
    Ok(show_page(&Preview { id, total: found.total, first, fields, start, end, left_out })?)
}

/// Counts the times of a span that a pause or a freeze has skipped.
async fn count_skipped(api: &Api, id: i64, start: DateTime<Utc>, end: DateTime<Utc>) -> Result<LeftOut, Failure> {
    let (from, to) = (for_api(&start), for_api(&end));
    let parameters = [
        ("decision", Some("skipped_paused")),
        ("from", Some(&*from)),
        ("to", Some(&*to)),
        ("limit", Some(MOST_LEFT_OUT)),
    ];
    let page: Page<OccurrenceView> = api.get(&with_query(&format!("/schedules/{id}/occurrences"), parameters)).await?;
    Ok(LeftOut { count: page.items.len(), is_more: page.next_cursor.is_some() })
}

async fn backfill(api: Api, PathId(id): PathId<i64>, Sent(fields): Sent<BackfillFields>) -> Act {
    // The preview has computed both: they are instants, and `end` lies behind the last minute.
    let (start, end) = (needed("start", &fields.start)?, needed("end", &fields.end)?);
    let body = fields.body(start, end, false)?;
    let started: BackfillView = api.post_json(&format!("/schedules/{id}:backfill"), body).await?.json()?;
    Ok(act::show_next(&format!("/backfills/{}", started.id), "backfill"))
}

impl BackfillFields {
    /// The span with all of its last minute, and without the future.
    fn span(&self, now: DateTime<Utc>) -> Result<(DateTime<Utc>, DateTime<Utc>), Failure> {
        let (start, last) = (needed("start", &self.start)?, needed("end", &self.end)?);
        Ok((start, (last + TimeDelta::minutes(1)).min(now)))
    }

    /// Whether it selects what was missed by the schedule of then: only the schedule of now has times in a pause or a freeze.
    fn leaves_out_skipped(&self) -> bool {
        matches!(&*self.only, "" | "missing") && self.timing != "now"
    }

    fn body(&self, start: DateTime<Utc>, end: DateTime<Utc>, dry_run: bool) -> Result<Value, Failure> {
        let max_concurrent = match self.max_concurrent.trim() {
            "" => None,
            text => Some(
                text.parse::<i32>()
                    .map_err(|_| Failure::of_field("max_concurrent", "max_concurrent must be a number from 1 to 10"))?,
            ),
        };
        let chosen = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Ok(json!({
            "start": for_api(&start),
            "end": for_api(&end),
            "only": chosen(&self.only),
            "order": chosen(&self.order),
            "timing": chosen(&self.timing),
            "max_concurrent": max_concurrent,
            "dry_run": dry_run,
        }))
    }
}

fn needed(field: &str, text: &str) -> Result<DateTime<Utc>, Failure> {
    parse_time(field, text)?.ok_or_else(|| Failure::of_field(field, &format!("{field} is missing")))
}

/// Complete, so that the start selects the times that the preview has shown.
fn for_api(time: &DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedule_of_then_skips_pauses() {
        let leaves_out = |only: &str, timing: &str| {
            BackfillFields { only: only.into(), timing: timing.into(), ..Default::default() }.leaves_out_skipped()
        };
        assert!(leaves_out("missing", "then") && leaves_out("", ""));
        assert!(!leaves_out("missing", "now") && !leaves_out("all", "then") && !leaves_out("failed", "then"));
    }

    /// The newest decisions of a span are fires, and hide that its first day was frozen.
    #[test]
    fn a_preview_says_that_it_has_not_read_all() {
        let words = |count, is_more| {
            let time = "2026-11-27T00:00:00Z".parse().unwrap();
            let (fields, left_out) = (BackfillFields::default(), Some(LeftOut { count, is_more }));
            let first = vec![time];
            Preview { id: 1, total: 1, first, fields, start: time, end: time, left_out }.render().unwrap()
        };
        let unread = words(0, true);
        assert!(unread.contains("may have been skipped") && unread.contains("Count by the cron of now"), "{unread}");
        let none = words(0, false);
        assert!(!none.contains("skipped") && !none.contains("Count by the cron of now"), "{none}");
        assert!(words(200, true).contains("200 or more times of the span were skipped"));
    }

    #[test]
    fn a_span_has_its_last_minute_and_no_future() {
        let fields =
            BackfillFields { start: "2026-11-26T00:00".into(), end: "2026-11-26T23:59".into(), ..Default::default() };
        let end_at = |now: &str| fields.span(now.parse().unwrap()).unwrap().1.to_rfc3339();
        assert_eq!(end_at("2026-11-28T00:00:00Z"), "2026-11-27T00:00:00+00:00");
        assert_eq!(end_at("2026-11-26T12:00:30Z"), "2026-11-26T12:00:30+00:00");
    }
}
