//! Steps 1 and 7 of 7: what every request passes first: its `Host`, and the count of refused requests.

use access::key_text::KeyText;
use axum::extract::{MatchedPath, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::auth::Peer;
use super::error::{Error, RefusalReason};
use crate::App;
use crate::refusals::Refusal;

/// Answers 400 to a request without `Host`, and notes each request that the app refuses because of its caller.
pub(crate) async fn note_refused_requests(State(app): State<App>, request: Request, next: Next) -> Response {
    let peer = Peer::of_request(request.extensions());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let key = request.headers().get("x-api-key").cloned();
    let response = match check_host(request.version(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    if let Some(RefusalReason(reason)) = response.extensions().get() {
        let key_prefix = key.as_ref().and_then(|key| KeyText::parse(key.to_str().ok()?)).map(|key| key.prefix());
        let route = route.as_ref().map(MatchedPath::as_str);
        app.note_refusal(&Refusal { reason, address: peer.0, key_prefix, route });
    }
    response
}

/// RFC 9112, section 3.2: a request of HTTP/1.1 has one `Host`, which is a host with or without a port. Otherwise a proxy
/// and the app could read two servers from one request.
fn check_host(version: Version, headers: &HeaderMap) -> Result<(), Error> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let is_accepted = match (hosts.next(), hosts.next()) {
        (None, _) => version < Version::HTTP_11,
        (Some(host), None) => host.is_empty() || is_host(host.as_bytes()),
        (Some(_), Some(_)) => false,
    };
    if is_accepted {
        return Ok(());
    }
    Err(Error::Refused(StatusCode::BAD_REQUEST, "invalid_host", "send one Host header, with a host".to_owned()))
}

/// Whether this is a host with or without a port, and no more.
fn is_host(text: &[u8]) -> bool {
    !text.contains(&b'@') && Authority::try_from(text).is_ok()
}
