//! `/admin/teams/{id}`: the name of a team, its limits and hosts, its secrets and its signing secret.

mod limits;
mod secrets;

use api_types::limits::{AllowedHostsView, TeamLimitsView};
use api_types::secrets::{SecretView, SecretsView};
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query};
use axum::http::Method;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::json;

use self::limits::LimitRow;
use super::shown::Shown;
use super::tabs::{self, Tab};
use crate::act::{self, Act};
use crate::answer::show_page;
use crate::api::{Api, Console, Write};
use crate::failure::Failure;
use crate::form::{Sent, filled, lines};
use crate::frame::{Frame, Menu};
use crate::path::PathId;
use crate::teams;

pub(super) fn routes() -> Router<Console> {
    Router::new()
        .route("/admin/teams/{id}", get(show))
        .route("/admin/teams/{id}/name", post(rename))
        .route("/admin/teams/{id}/hosts", post(set_hosts))
        .route("/admin/teams/{id}/delete", post(delete))
        .merge(limits::routes())
        .merge(secrets::routes())
}

#[derive(Template)]
#[template(path = "admin/team.html")]
struct TeamPage {
    frame: Frame,
    tab: Tab,
    id: i64,
    name: String,
    limits: Vec<LimitRow>,
    limits_etag: String,
    hosts: Vec<String>,
    hosts_etag: String,
    secrets: Vec<SecretView>,
}

async fn show(api: Api, PathId(id): PathId<i64>, Query(shown): Query<Shown>) -> Result<Response, Failure> {
    let (limits, limits_etag) = api.get_tagged::<TeamLimitsView>(&format!("/teams/{id}/limits")).await?;
    let (hosts, hosts_etag) = api.get_tagged::<AllowedHostsView>(&format!("/teams/{id}/hosts")).await?;
    let secrets: SecretsView = api.get(&format!("/teams/{id}/secrets")).await?;
    let name = teams::find_name(&api, id).await?.unwrap_or_else(|| format!("team {id}"));
    let frame = Frame::read(&api, Menu::Admin, format!("Team {name}"), shown.done.as_deref()).await?;
    show_page(&TeamPage {
        frame,
        tab: Tab::Teams,
        id,
        name,
        limits: limits::rows(&limits),
        limits_etag,
        hosts: hosts.allowed_hosts,
        hosts_etag,
        secrets: secrets.items,
    })
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

async fn rename(api: Api, Path(id): Path<i64>, Sent(form): Sent<Name>) -> Act {
    let write = Write { body: Some(json!({ "name": form.name })), ..Write::default() };
    api.send(Method::PATCH, &format!("/teams/{id}"), write).await?;
    Ok(act::show_next(&format!("/admin/teams/{id}"), "team-renamed"))
}

#[derive(Deserialize)]
struct Hosts {
    allowed_hosts: String,
    /// The version that the visitor has seen.
    #[serde(default)]
    etag: String,
}

async fn set_hosts(api: Api, Path(id): Path<i64>, Sent(form): Sent<Hosts>) -> Act {
    let body = json!({ "allowed_hosts": lines(&form.allowed_hosts) });
    let write = Write { body: Some(body), if_match: filled(&form.etag), ..Write::default() };
    api.send(Method::PUT, &format!("/teams/{id}/hosts"), write).await?;
    Ok(act::show_next(&format!("/admin/teams/{id}"), "hosts"))
}

async fn delete(api: Api, Path(id): Path<i64>) -> Act {
    api.send(Method::DELETE, &format!("/teams/{id}"), Write::default()).await?;
    Ok(act::show_next("/admin/teams", "team-deleted"))
}
