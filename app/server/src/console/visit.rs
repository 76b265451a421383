//! Who looks at a page: the holder of the session that its cookie names.

use std::sync::Arc;

use access::gate::Admission;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use console::Visit;
use console::failure::{ActFailure, Failure};
use uuid::Uuid;

use super::{cookie, guard};
use crate::App;
use crate::api::request::auth::{Caller, Peer, SessionCaller, admit_session, admitted};
use crate::api::request::error::Error;
use crate::api::request::view::to_view;
use crate::connection::Connection;

/// Adds the [`Visit`] to a request with a session; another one is led to the sign-in.
pub(super) async fn identify_visitor(State(app): State<App>, request: Request, next: Next) -> Response {
    let is_act = !guard::is_read(request.method());
    if is_act && !guard::is_of_a_page(request.headers()) {
        return show_failure(guard::foreign(), is_act);
    }
    let (parts, body) = request.into_parts();
    let found = find_visit(&app, &parts).await;
    let mut request = Request::from_parts(parts, body);
    match found {
        Ok(Some(visit)) => request.extensions_mut().insert(visit),
        Ok(None) => return lead_to_sign_in(&request),
        Err(error) => return show_failure(error, is_act),
    };
    next.run(request).await
}

/// What the session of a request permits; `None`: it has none, or one that has ended.
async fn find_visit(app: &App, parts: &Parts) -> Result<Option<Visit>, Error> {
    let text = cookie::find_session(&parts.headers).unwrap_or_default();
    let found = find_visitor(app, &parts.headers, Peer::of_request(&parts.extensions)).await?;
    Ok(match found {
        Some((_, Admission::Expired)) | None => None,
        Some((_, admission)) => Some(visit_of(app, parts, text, admitted(app, admission)?)),
    })
}

/// A refusal or a failure as a page, or as the answer to an act, which leaves in place what the visitor has typed. It is
/// logged and counted as the same answer of the API.
fn show_failure(error: Error, is_act: bool) -> Response {
    let (status, problem) = error.problem();
    let answer = error.into_response();
    let failure = Failure::Refused(status, Box::new(problem));
    let mut shown = if is_act { ActFailure(failure).into_response() } else { failure.into_response() };
    *shown.extensions_mut() = answer.extensions().clone();
    if let Some(seconds) = answer.headers().get(header::RETRY_AFTER) {
        shown.headers_mut().insert(header::RETRY_AFTER, seconds.clone());
    }
    shown
}

/// The session of a request, and what its holder may do now.
pub(super) async fn find_visitor(
    app: &App,
    headers: &HeaderMap,
    peer: Peer,
) -> Result<Option<(Uuid, Admission)>, Error> {
    match cookie::find_session(headers) {
        Some(text) => admit_session(app, text, peer).await,
        None => Ok(None),
    }
}

/// What the requests of a page to the API carry: the caller and its session, its address, and its connection, which a
/// stream must know to make room.
fn visit_of(app: &App, parts: &Parts, text: &str, caller: Caller) -> Visit {
    let permitted =
        access::rights::Scope::ALL.into_iter().filter(|scope| caller.permits(*scope)).map(to_view).collect();
    let mut identity = Extensions::new();
    identity.insert(SessionCaller { caller, text: text.into() });
    identity.insert(Peer::of_request(&parts.extensions));
    if let Some(connection) = parts.extensions.get::<Arc<Connection>>() {
        identity.insert(connection.clone());
    }
    Visit { identity, permitted, now: app.clock.now() }
}

/// A page leads to the sign-in and back; a part of a page, which a script has requested, makes the browser do so.
fn lead_to_sign_in(request: &Request) -> Response {
    let address = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let sign_in = console::pages::sign_in::path_back_to(address);
    if request.headers().contains_key("hx-request") {
        return (StatusCode::UNAUTHORIZED, [("hx-redirect", sign_in)]).into_response();
    }
    match sign_in.parse::<Uri>() {
        Ok(_) => Redirect::to(&sign_in).into_response(),
        Err(_) => Redirect::to("/sign-in").into_response(),
    }
}
