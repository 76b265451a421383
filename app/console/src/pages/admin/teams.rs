//! `/admin/teams`: the list, and new teams.

use api_types::keys::TeamView;
use api_types::page::Page;
use api_types::teams::ListedTeamView;
use askama::Template;
use axum::Router;
use axum::extract::Query;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;
use serde_json::json;

use super::shown::{ROWS, Shown};
use super::tabs::{self, Tab};
use crate::act::Act;
use crate::answer::{ShownOnce, show_page};
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::form::Sent;
use crate::frame::{Frame, Menu};
use crate::query::with_query;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/admin/teams", get(list).post(create))
}

#[derive(Template)]
#[template(path = "admin/teams.html")]
struct TeamsPage {
    frame: Frame,
    tab: Tab,
    teams: Vec<ListedTeamView>,
    is_first: bool,
    next: Option<String>,
}

async fn list(api: Api, Query(shown): Query<Shown>) -> Result<Response, Failure> {
    let frame = Frame::read(&api, Menu::Admin, "Teams", shown.done.as_deref()).await?;
    let path = with_query("/teams", [("cursor", Some(&*shown.cursor)), ("limit", Some(ROWS))]);
    let page: Page<ListedTeamView> = api.get(&path).await?;
    let next = page.next_cursor.as_deref().map(|cursor| with_query("/admin/teams", [("cursor", Some(cursor))]));
    show_page(&TeamsPage { frame, tab: Tab::Teams, teams: page.items, is_first: shown.cursor.is_empty(), next })
}

#[derive(Deserialize)]
struct NewTeam {
    name: String,
}

async fn create(api: Api, Sent(form): Sent<NewTeam>) -> Act {
    let created: TeamView = api.post_json("/teams", json!({ "name": form.name })).await?.json()?;
    let next = format!("/admin/teams/{}", created.id);
    let secret = created.signing_secret.ok_or_else(Failure::sent_before)?;
    Ok(show_page(&ShownOnce {
        title: format!("The team {} was created. This is its signing secret", created.name),
        hint: "Receivers of its http actions check signatures with it. It is shown only now: store it. A lost secret is replaced by a rotation.",
        texts: vec![("Signing secret", secret)],
        next: &next,
    })?)
}
