//! `/admin/sessions`: who is signed in to the console.

use api_types::page::Page;
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query};
use axum::response::Response;
use axum::routing::{get, post};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use uuid::Uuid;

use super::shown::{ROWS, Shown};
use super::tabs::{self, Tab};
use crate::act::{self, Act};
use crate::answer::{if_permitted, show_page};
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::frame::{Frame, Menu};
use crate::query::with_query;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/admin/sessions", get(list)).route("/admin/sessions/{id}/end", post(end))
}

/// A session, as the API shows it.
#[derive(Deserialize)]
struct Session {
    id: Uuid,
    /// The name of the person or the key.
    name: String,
    is_person: bool,
    source_address: Option<String>,
    created_on: DateTime<Utc>,
    expires_on: DateTime<Utc>,
}

#[derive(Template)]
#[template(path = "admin/sessions.html")]
struct SessionsPage {
    frame: Frame,
    tab: Tab,
    /// `None`: the visitor may not see them.
    sessions: Option<Vec<Session>>,
    is_first: bool,
    next: Option<String>,
}

async fn list(api: Api, Query(shown): Query<Shown>) -> Result<Response, Failure> {
    let frame = Frame::read(&api, Menu::Admin, "Sessions", shown.done.as_deref()).await?;
    let path = with_query("/sessions", [("cursor", Some(&*shown.cursor)), ("limit", Some(ROWS))]);
    let page: Option<Page<Session>> = if_permitted(api.get(&path).await)?;
    let next = page.as_ref().and_then(|page| page.next_cursor.as_deref());
    let next = next.map(|cursor| with_query("/admin/sessions", [("cursor", Some(cursor))]));
    let sessions = page.map(|page| page.items);
    show_page(&SessionsPage { frame, tab: Tab::Sessions, sessions, is_first: shown.cursor.is_empty(), next })
}

async fn end(api: Api, Path(id): Path<Uuid>) -> Act {
    api.post(&format!("/sessions/{id}:end")).await?;
    Ok(act::show_next("/admin/sessions", "session-ended"))
}
