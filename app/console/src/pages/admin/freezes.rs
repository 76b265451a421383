//! `/admin/freezes`: spans in which no schedule of a team, or of all teams, runs.

use api_types::freezes::{FreezeState, FreezeView};
use api_types::keys::Kind;
use api_types::page::Page;
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query};
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::shown::{ROWS, Shown};
use super::tabs::{self, Tab};
use crate::act::{self, Act};
use crate::answer::show_page;
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::form::{Sent, object, parse_time, whole_number};
use crate::frame::{Frame, Menu};
use crate::query::with_query;
use crate::teams::Teams;
use crate::words::Badge;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/admin/freezes", get(list).post(create)).route("/admin/freezes/{id}/lift", post(lift))
}

struct Row {
    freeze: FreezeView,
    badge: Badge,
    may_lift: bool,
}

#[derive(Template)]
#[template(path = "admin/freezes.html")]
struct FreezesPage {
    frame: Frame,
    tab: Tab,
    rows: Vec<Row>,
    teams: Teams,
    /// Whether the visitor may freeze all teams.
    may_choose_all: bool,
    is_first: bool,
    next: Option<String>,
}

async fn list(api: Api, Query(shown): Query<Shown>) -> Result<Response, Failure> {
    let frame = Frame::read(&api, Menu::Admin, "Freezes", shown.done.as_deref()).await?;
    let path = with_query("/freezes", [("cursor", Some(&*shown.cursor)), ("limit", Some(ROWS))]);
    let page: Page<FreezeView> = api.get(&path).await?;
    let next = page.next_cursor.as_deref().map(|cursor| with_query("/admin/freezes", [("cursor", Some(cursor))]));
    let may_choose_all = frame.me.kind == Kind::Admin && frame.may_edit();
    let rows = page.items.into_iter().map(|freeze| Row {
        badge: badge(freeze.state),
        may_lift: frame.may_edit()
            && freeze.state != FreezeState::Ended
            && (freeze.team_id.is_some() || may_choose_all),
        freeze,
    });
    let (rows, teams) = (rows.collect(), Teams::read(&api).await?);
    let is_first = shown.cursor.is_empty();
    show_page(&FreezesPage { frame, tab: Tab::Freezes, rows, teams, may_choose_all, is_first, next })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NewFreeze {
    team_id: String,
    reason: String,
    from: String,
    until: String,
}

async fn create(api: Api, Sent(form): Sent<NewFreeze>) -> Act {
    let is_of_all = form.team_id == "all";
    let team_id = if is_of_all { None } else { whole_number::<i64>("team_id", &form.team_id)? };
    let body = object([
        ("team_id", json!(team_id)),
        ("all_teams", json!(is_of_all)),
        ("reason", json!(form.reason)),
        ("from", json!(parse_time("from", &form.from)?)),
        ("until", json!(parse_time("until", &form.until)?)),
    ]);
    let created: FreezeView = api.post_json("/freezes", body).await?.json()?;
    let done = if created.state == FreezeState::Planned { "freeze-planned" } else { "frozen" };
    Ok(act::show_next("/admin/freezes", done))
}

async fn lift(api: Api, Path(id): Path<Uuid>) -> Act {
    api.post(&format!("/freezes/{id}:lift")).await?;
    Ok(act::show_next("/admin/freezes", "lifted"))
}

fn badge(state: FreezeState) -> Badge {
    let (words, class, mark) = match state {
        FreezeState::Planned => ("planned", "busy", "○"),
        FreezeState::InForce => ("in force", "warn", "‖"),
        FreezeState::Ended => ("ended", "quiet", "–"),
    };
    Badge { words, class, mark }
}
