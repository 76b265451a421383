//! `/admin/keys`: the list, new keys and revocation.

pub(super) mod words;

use api_types::keys::{KeyView, NewKeyView};
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
use crate::answer::{ShownOnce, if_permitted, show_page};
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::form::{Sent, lines, object, parse_time, whole_number};
use crate::frame::{Frame, Menu};
use crate::query::with_query;
use crate::teams::Teams;

pub(super) fn routes() -> Router<Console> {
    Router::new().route("/admin/keys", get(list).post(create)).route("/admin/keys/{id}/revoke", post(revoke))
}

/// The scopes that a form offers, with what they permit.
const SCOPES: [(&str, &str); 6] = [
    ("read", "read workflows and runs"),
    ("edit", "edit workflows, start and cancel runs"),
    ("auditor", "read what belongs to all teams"),
    ("operate", "check the drift, and repair edits"),
    ("admin", "administer teams and keys"),
    ("invoke", "deliver fires"),
];

#[derive(Template)]
#[template(path = "admin/keys.html")]
struct KeysPage {
    frame: Frame,
    tab: Tab,
    /// `None`: the visitor may not see them.
    keys: Option<Vec<KeyView>>,
    teams: Teams,
    is_first: bool,
    next: Option<String>,
}

async fn list(api: Api, Query(shown): Query<Shown>) -> Result<Response, Failure> {
    let frame = Frame::read(&api, Menu::Admin, "Keys", shown.done.as_deref()).await?;
    let path = with_query("/keys", [("cursor", Some(&*shown.cursor)), ("limit", Some(ROWS))]);
    let page: Option<Page<KeyView>> = if_permitted(api.get(&path).await)?;
    let next = page.as_ref().and_then(|page| page.next_cursor.as_deref());
    let next = next.map(|cursor| with_query("/admin/keys", [("cursor", Some(cursor))]));
    let teams = Teams::read(&api).await?;
    let keys = page.map(|page| page.items);
    show_page(&KeysPage { frame, tab: Tab::Keys, keys, teams, is_first: shown.cursor.is_empty(), next })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NewKey {
    kind: String,
    team_id: String,
    role: String,
    name: String,
    scopes: Vec<String>,
    expires_on: String,
    allowed_cidrs: String,
}

async fn create(api: Api, Sent(form): Sent<NewKey>) -> Act {
    let is_of_team = form.kind == "team";
    // The form always has a team and a role; keys of other kinds have neither.
    let team_id = if is_of_team { whole_number::<i64>("team_id", &form.team_id)? } else { None };
    let role = is_of_team.then_some(&form.role);
    let cidrs = Some(lines(&form.allowed_cidrs)).filter(|cidrs| !cidrs.is_empty());
    let body = object([
        ("kind", json!(form.kind)),
        ("team_id", json!(team_id)),
        ("role", json!(role)),
        ("name", json!(form.name)),
        ("scopes", json!(Some(&form.scopes).filter(|scopes| !scopes.is_empty()))),
        ("expires_on", json!(parse_time("expires_on", &form.expires_on)?)),
        ("allowed_cidrs", json!(cidrs)),
    ]);
    let created: NewKeyView = api.post_json("/keys", body).await?.json()?;
    let key = created.key.ok_or_else(Failure::sent_before)?;
    Ok(show_page(&ShownOnce {
        title: format!("The key {} was created", created.shown.name),
        hint: "It is shown only now, and no page can show it again. Store it where its program reads it.",
        texts: vec![("Key", key)],
        next: "/admin/keys",
    })?)
}

async fn revoke(api: Api, Path(id): Path<Uuid>) -> Act {
    api.post(&format!("/keys/{id}:revoke")).await?;
    Ok(act::show_next("/admin/keys", "key-revoked"))
}
