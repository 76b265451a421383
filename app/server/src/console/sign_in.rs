//! `/sign-in`, `/sign-out`: begins a session by a key or by a link that works once, and ends it.

use access::gate::{Admission, KeyPools};
use access::rights::Kind;
use access::sessions::{self, SignIn};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use console::pages::sign_in::safe_address;
use serde::Deserialize;

use super::cookie::{Transport, find_session};
use super::provider;
use super::session::{begin, page_of, show_refusal};
use super::visit::find_visitor;
use crate::App;
use crate::api::request::auth::{Caller, Peer, admitted, begin_sign_in};
use crate::api::request::edit_transaction::EditTransaction;
use crate::api::request::error::Error;
use crate::api::request::extract::{SmallForm, new_traceparent};

/// The routes, which need no session.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/sign-in", get(show).post(by_key))
        .route("/sign-in/link", post(by_link))
        .route("/sign-in/provider", get(provider::send_to_provider))
        .route("/sign-in/callback", get(provider::take_code))
        .route("/sign-out", post(end))
}

/// The query of the page.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Shown {
    /// Where to go then.
    next: String,
    /// The text of a link.
    link: String,
}

/// What the form sends.
#[derive(Deserialize)]
struct KeyForm {
    key: String,
    #[serde(default)]
    next: String,
}

/// What the form of a link sends.
#[derive(Deserialize)]
struct LinkForm {
    link: String,
}

/// The page. A link is used only when its button is pressed, so that a program that looks at links uses none.
async fn show(State(app): State<App>, headers: HeaderMap, Query(query): Query<Shown>) -> Response {
    let link = Some(query.link).filter(|link| !link.is_empty());
    let page = page_of(&app, &headers, &query.next, link);
    (StatusCode::OK, Html(page.to_html())).into_response()
}

async fn by_key(
    State(app): State<App>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    SmallForm(form): SmallForm<KeyForm>,
) -> Response {
    let peer = peer.map_or_else(Peer::unknown, |Extension(peer)| peer);
    let begun = match admit(&app, peer, form.key.trim()).await {
        Ok(caller) => {
            let who = SignIn::Key { id: caller.key_id(), team_id: caller.team_id };
            begin(&app, &headers, &caller, who).await
        }
        Err(error) => Err(error),
    };
    let next = safe_address(&form.next);
    match begun {
        Ok(cookie) => ([(header::SET_COOKIE, cookie)], Redirect::to(next)).into_response(),
        Err(error) => show_refusal(&app, &headers, next, error),
    }
}

/// The caller of a key that may sign in.
async fn admit(app: &App, Peer(peer): Peer, key: &str) -> Result<Caller, Error> {
    let pools = KeyPools { of_request: &app.pools.reads, fires: &app.pools.fires };
    let admission = app.gate.admit_key(pools, key, peer, app.clock.now()).await?;
    let caller = admitted(app, admission)?.at_address(peer);
    if caller.kind == Kind::Scheduler {
        return Err(Error::forbidden("this key is for the runner: sign in with a key of a team or of an admin"));
    }
    Ok(caller)
}

async fn by_link(
    State(app): State<App>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    SmallForm(form): SmallForm<LinkForm>,
) -> Response {
    let peer = peer.map_or_else(Peer::unknown, |Extension(peer)| peer);
    match use_link(&app, peer, &headers, &form.link).await {
        Ok(cookie) => ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response(),
        Err(error) => show_refusal(&app, &headers, "/", error),
    }
}

async fn use_link(app: &App, Peer(peer): Peer, headers: &HeaderMap, link: &str) -> Result<header::HeaderValue, Error> {
    let transport = Transport::of_request(headers);
    transport.cookie_name()?;
    let attempt = begin_sign_in(app, peer)?;
    let now = app.clock.now();
    // Before a connection for edits: only one browser takes the link, and those that wait for it must leave connections to
    // other teams.
    let team_id = sessions::find_team_of_link(&mut *app.pools.reads.acquire().await?, link).await?;
    let mut tx = EditTransaction::begin_of_team(app, team_id).await?;
    let key_id = sessions::take_link(&mut tx, link, now).await?;
    let caller = match key_id {
        Some(key_id) => app.gate.caller_of_key(&mut tx, key_id).await?,
        None => None,
    };
    let caller = caller.filter(|caller| caller.kind != Kind::Scheduler);
    let Some(caller) = caller else {
        return Err(Error::unauthorized());
    };
    attempt.succeed();
    let caller = caller.at_address(peer);
    let who = SignIn::Key { id: caller.key_id(), team_id: caller.team_id };
    let (_, text) = sessions::begin_session(&mut tx, who, &caller.edit_at(now, new_traceparent())).await?;
    tx.commit().await?;
    transport.begin(&text)?.ok_or_else(|| Error::Internal(anyhow::anyhow!("the cookie is no header")))
}

/// Ends the session of the browser, also one that may do nothing else now, for example from this network.
async fn end(State(app): State<App>, peer: Option<Extension<Peer>>, headers: HeaderMap) -> Result<Response, Error> {
    let peer = peer.map_or_else(Peer::unknown, |Extension(peer)| peer);
    match find_visitor(&app, &headers, peer).await? {
        Some((_, Admission::TooManyUnknown)) => drop(admitted(&app, Admission::TooManyUnknown)?),
        Some((_, admission)) => end_session(&app, &headers, peer, team_of(&admission)).await?,
        None => {}
    }
    let mut answer = (StatusCode::OK, [("hx-redirect", "/sign-in")]).into_response();
    if let Some(cookie) = Transport::of_request(&headers).end() {
        answer.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(answer)
}

/// The team of a visitor, if it is known.
fn team_of(admission: &Admission) -> Option<i64> {
    match admission {
        Admission::Admitted(caller) => caller.team_id,
        Admission::TooManyRequests
        | Admission::Expired
        | Admission::AddressNotAllowed
        | Admission::NoRole
        | Admission::Unknown
        | Admission::TooManyUnknown => None,
    }
}

async fn end_session(app: &App, headers: &HeaderMap, Peer(peer): Peer, team_id: Option<i64>) -> Result<(), Error> {
    let text = find_session(headers).unwrap_or_default();
    let mut tx = EditTransaction::begin_of_team(app, team_id).await?;
    let found = app.gate.edit_of_holder(&mut tx, text, peer, app.clock.now(), new_traceparent()).await?;
    if let Some((id, edit)) = found {
        sessions::end_session(&mut tx, id, "sign-out", &edit).await?;
    }
    tx.commit().await?;
    app.gate.forget_sessions();
    Ok(())
}
