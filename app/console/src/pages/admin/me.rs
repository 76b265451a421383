//! `/admin/me`: who is signed in, and a link that signs in once.

use api_types::keys::{NewKeyView, Scope};
use askama::Template;
use axum::Router;
use axum::extract::Query;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use axum::routing::{get, post};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::keys::words;
use super::shown::Shown;
use super::tabs::{self, Tab};
use crate::act::Act;
use crate::answer::{ShownOnce, show_page};
use crate::api::{Api, Console};
use crate::failure::Failure;
use crate::form::Sent;
use crate::frame::{Frame, Menu};
use crate::teams::Teams;
use crate::times;

pub(super) fn routes() -> Router<Console> {
    Router::new()
        .route("/admin/me", get(show))
        .route("/admin/me/sign-in-link", post(make_link))
        .route("/admin/me/rotate-key", post(rotate_key))
}

#[derive(Template)]
#[template(path = "admin/me.html")]
struct MePage {
    frame: Frame,
    tab: Tab,
    teams: Teams,
    /// All that the scopes of the visitor include.
    permitted: Vec<Scope>,
}

async fn show(api: Api, Query(shown): Query<Shown>) -> Result<Response, Failure> {
    let frame = Frame::read(&api, Menu::Admin, "You", shown.done.as_deref()).await?;
    let teams = Teams::read(&api).await?;
    show_page(&MePage { frame, tab: Tab::Me, teams, permitted: api.permitted().to_vec() })
}

/// A link that signs in once.
#[derive(Deserialize)]
struct SignInLink {
    path: String,
    expires_on: DateTime<Utc>,
}

async fn make_link(api: Api, headers: HeaderMap) -> Act {
    let link: SignInLink = api.post("/sign-in-links").await?.json()?;
    let address = address_of(&headers, &link.path);
    let title = format!("This link signs in as you, once, until {}", times::in_utc_to_the_second(&link.expires_on));
    let hint = "Open it in another browser, for example on your phone. Keep it to yourself: it has all your rights.";
    Ok(show_page(&ShownOnce { title, hint, texts: vec![("Link", address)], next: "/admin/me" })?)
}

/// For how long the old key is still accepted.
#[derive(Deserialize)]
struct Overlap {
    overlap_secs: u32,
}

async fn rotate_key(api: Api, Sent(form): Sent<Overlap>) -> Act {
    let made = api.post_json("/keys/self:rotate", json!({ "overlap_secs": form.overlap_secs })).await?;
    let made: NewKeyView = made.json()?;
    let key = made.key.ok_or_else(Failure::sent_before)?;
    let title = "This is your new key".to_owned();
    let hint = "It is shown only now. This session ends with the old key: sign in with the new one then.";
    Ok(show_page(&ShownOnce { title, hint, texts: vec![("Key", key)], next: "/admin/me" })?)
}

/// The path with the origin that the browser sends with each write; the path only, if there is none.
fn address_of(headers: &HeaderMap, path: &str) -> String {
    let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok()?.parse::<Url>().ok());
    let address = origin.filter(|origin| matches!(origin.scheme(), "http" | "https"));
    address.and_then(|origin| origin.join(path).ok()).map_or_else(|| path.to_owned(), Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_begin_with_the_origin_of_the_page() {
        let mut headers = HeaderMap::new();
        assert_eq!(address_of(&headers, "/sign-in?link=a"), "/sign-in?link=a");
        headers.insert(header::ORIGIN, "https://cronbox.example:8443".parse().unwrap());
        assert_eq!(address_of(&headers, "/sign-in?link=a"), "https://cronbox.example:8443/sign-in?link=a");
        headers.insert(header::ORIGIN, "null".parse().unwrap());
        assert_eq!(address_of(&headers, "/sign-in?link=a"), "/sign-in?link=a");
    }
}
