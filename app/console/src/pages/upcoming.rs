//! `/upcoming`: which minutes of the next one or two days will be hot.

use api_types::upcoming::UpcomingView;
use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::Response;
use axum::routing::get;
use chrono::TimeDelta;
use serde::Deserialize;

use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::drawing::heat::{self, Cell, Level, Part, Row};
use crate::failure::Failure;
use crate::frame::{Frame, Menu};
use crate::query::with_query;
use crate::teams::Teams;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/upcoming", get(show))
}

/// How many of the busiest parts the page names.
const NAMED: usize = 10;
/// From so many times in a part on, the page advises to spread them.
const WORTH_A_SPREAD: i64 = 10;

/// Which span, and whose.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Filters {
    hours: String,
    team_id: String,
}

#[derive(Template)]
#[template(path = "upcoming.html")]
struct UpcomingPage {
    frame: Frame,
    filters: Filters,
    teams: Teams,
    upcoming: UpcomingView,
    /// The length of a part.
    minutes: i64,
    total: i64,
    cells: Vec<Cell>,
    rows: Vec<Row>,
    levels: [Level; 5],
    busiest: Vec<Part>,
    /// Where the workflows are listed that come next.
    workflows: String,
}

async fn show(api: Api, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let filters: Filters = serde_html_form::from_str(query.as_deref().unwrap_or_default()).unwrap_or_default();
    let frame = Frame::read(&api, Menu::Upcoming, "Upcoming", None).await?;
    let upcoming: UpcomingView = api.get(&filters.path_of_api()).await?;
    let parts: Vec<_> = upcoming.buckets.iter().map(|part| Part { from: part.from, due: part.due }).collect();
    let workflows = [("team_id", Some(filters.team_id.as_str())), ("sort", Some("next_fire_at"))];
    let bucket = TimeDelta::seconds(upcoming.bucket_secs);
    let page = UpcomingPage {
        teams: Teams::read_choice(&api, &frame).await?,
        frame,
        workflows: with_query("/workflows", workflows),
        minutes: bucket.num_minutes(),
        total: parts.iter().map(|part| part.due).sum(),
        cells: heat::cells(&parts, upcoming.from, bucket),
        rows: heat::rows(upcoming.from, upcoming.to),
        levels: heat::levels(parts.iter().map(|part| part.due).max().unwrap_or(0)),
        busiest: busiest(parts),
        upcoming,
        filters,
    };
    show_page(&page)
}

/// The parts with the most due times, the hottest first.
fn busiest(mut parts: Vec<Part>) -> Vec<Part> {
    parts.retain(|part| part.due > 0);
    parts.sort_by_key(|part| (-part.due, part.from));
    parts.truncate(NAMED);
    parts
}

impl Filters {
    fn path_of_api(&self) -> String {
        // The API has at most 1,500 parts: two days do not fit minute by minute.
        let (hours, bucket) = if self.is_of_two_days() { ("48", "120") } else { ("24", "60") };
        let parameters = [("hours", hours), ("bucket_secs", bucket), ("team_id", &self.team_id)];
        with_query("/upcoming", parameters.map(|(name, value)| (name, Some(value))))
    }

    fn is_of_two_days(&self) -> bool {
        self.hours == "48"
    }
}

impl UpcomingPage {
    /// The count of the hottest part, if spreading it is worth it.
    fn hot(&self) -> Option<i64> {
        self.busiest.first().map(|part| part.due).filter(|due| *due >= WORTH_A_SPREAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::DateTime;

    #[test]
    fn the_hottest_part_comes_first() {
        let at = |minute| DateTime::UNIX_EPOCH + TimeDelta::minutes(minute);
        let parts = vec![(1, 3), (2, 9), (3, 0), (4, 9)];
        let found = busiest(parts.into_iter().map(|(minute, due)| Part { from: at(minute), due }).collect());
        let found: Vec<_> = found.iter().map(|part| (part.from, part.due)).collect();
        assert_eq!(found, [(at(2), 9), (at(4), 9), (at(1), 3)]);
    }
}
