//! `/`: what needs a hand, and the day before and after now.

mod tiles;

use api_types::keys::Kind;
use api_types::runs::RunView;
use api_types::stats::StatsView;
use api_types::upcoming::UpcomingView;
use askama::Template;
use axum::Router;
use axum::extract::Query;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use self::tiles::{Counting, Tile};
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::drawing::columns::{self, Column, Part};
use crate::failure::Failure;
use crate::frame::{Frame, Menu};
use crate::query::with_query;
use crate::teams::{Teams, usual_team};
use crate::times;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/", get(show))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Shown {
    team_id: String,
    /// What an act has done.
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    /// The teams of a visitor who has several.
    teams: Teams,
    team_id: Option<i64>,
    tiles: Vec<Tile>,
    /// What the visitor may not see.
    is_partial: bool,
    stats: StatsView,
    past: Vec<Column>,
    coming: Vec<Column>,
    due_today: i64,
    busiest: Option<(String, i64)>,
    failed: Vec<RunView>,
}

/// Parts of five minutes in a day.
const DAY_IN_PARTS: [(&str, Option<&str>); 2] = [("hours", Some("24")), ("bucket_secs", Some("300"))];

async fn show(api: Api, Query(query): Query<Shown>) -> Result<Response, Failure> {
    let frame = Frame::read(&api, Menu::Overview, "Overview", query.done.as_deref()).await?;
    let team_id = query.team_id.parse().ok().or_else(|| usual_team(&frame));
    let of_day = |path| {
        let team = team_id.map(|id| id.to_string());
        with_query(path, DAY_IN_PARTS.into_iter().chain([("team_id", team.as_deref())]))
    };
    let stats: StatsView = api.get(&of_day("/stats")).await?;
    let upcoming: UpcomingView = api.get(&of_day("/upcoming")).await?;
    let counting = Counting { api: &api, team_id };
    let (mut tiles, failed) = counting.of_team(&stats).await?;
    if frame.may_audit() && team_id.is_none() {
        tiles.extend(counting.of_all().await?);
    }
    tiles.retain(|tile| tile.count != Some(0));
    let (past, coming) = (past_columns(&stats), coming_columns(&upcoming));
    let busiest = upcoming.buckets.iter().max_by_key(|part| part.due).filter(|part| part.due > 0);
    let page = OverviewPage {
        is_partial: !frame.may_audit(),
        teams: Teams::read_choice(&api, &frame).await?,
        frame,
        team_id,
        tiles,
        due_today: upcoming.buckets.iter().map(|part| part.due).sum(),
        busiest: busiest.map(|part| (times::in_utc(&part.from), part.due)),
        stats,
        past,
        coming,
        failed,
    };
    show_page(&page)
}

impl OverviewPage {
    /// The id of the chosen team; empty: all.
    fn chosen_team(&self) -> String {
        self.team_id.map(|id| id.to_string()).unwrap_or_default()
    }
}

fn past_columns(stats: &StatsView) -> Vec<Column> {
    let parts: Vec<_> = stats
        .buckets
        .iter()
        .flatten()
        .map(|bucket| {
            let decisions = &bucket.occurrences;
            Part {
                from: bucket.from,
                good: decisions.fired + decisions.caught_up + decisions.backfilled,
                bad: decisions.missed + decisions.abandoned,
                quiet: decisions.skipped_overlap + decisions.skipped_paused,
            }
        })
        .collect();
    columns::columns(&parts, &(stats.from..stats.to), "good")
}

fn coming_columns(upcoming: &UpcomingView) -> Vec<Column> {
    let parts: Vec<_> =
        upcoming.buckets.iter().map(|bucket| Part { from: bucket.from, good: bucket.due, bad: 0, quiet: 0 }).collect();
    columns::columns(&parts, &(upcoming.from..upcoming.to), "busy")
}
