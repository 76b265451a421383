//! Who looks at a page: the holder of the session that its cookie names.

use std::sync::Arc;

use access::gate::Admission;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use console::Visit;
use uuid::Uuid;

use super::{cookie, guard};
use crate::App;
use crate::api::request::auth::{Caller, Peer, SessionCaller, admit_session, admitted};
use crate::api::request::error::Error;
use crate::api::request::view::to_view;
use crate::connection::Connection;

/// Adds the [`Visit`] to a request with a session; another one is led to the sign-in.
pub(super) async fn identify_visitor(State(app): State<App>, request: Request, next: Next) -> Result<Response, Error> {
    if !guard::is_read(request.method()) && !guard::is_of_a_page(request.headers()) {
        return Err(guard::foreign());
    }
    let peer = Peer::of_request(request.extensions());
    let (parts, body) = request.into_parts();
    let text = cookie::find_session(&parts.headers).unwrap_or_default();
    let found = find_visitor(&app, &parts.headers, peer).await?;
    let visit = match found {
        // As a session that has ended.
        Some((_, Admission::Expired)) | None => None,
        Some((_, admission)) => Some(visit_of(&app, &parts, text, admitted(&app, admission)?)),
    };
    let mut request = Request::from_parts(parts, body);
    let Some(visit) = visit else { return Ok(lead_to_sign_in(&request)) };
    request.extensions_mut().insert(visit);
    Ok(next.run(request).await)
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
