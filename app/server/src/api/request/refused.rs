//! Steps 1 and 7 of 7: the `Host` of a request, and the count of refused requests.

use access::key_text::KeyText;
use axum::extract::{MatchedPath, Request};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version, header};
use axum::response::Response;

use super::auth::Peer;
use super::error::{Error, RefusalReason};
use crate::App;
use crate::refusals::Refusal;

/// What the note of a refused request says of it.
pub(crate) struct RefusedRequest {
    peer: Peer,
    route: Option<MatchedPath>,
    key: Option<HeaderValue>,
}

impl RefusedRequest {
    pub(crate) fn of_request(request: &Request) -> Self {
        let peer = Peer::of_request(request.extensions());
        let route = request.extensions().get::<MatchedPath>().cloned();
        Self { peer, route, key: request.headers().get("x-api-key").cloned() }
    }

    /// Notes the request if the app has refused it because of its caller.
    pub(crate) fn note(&self, app: &App, response: &Response) {
        let Some(RefusalReason(reason)) = response.extensions().get() else { return };
        let key_prefix = self.key.as_ref().and_then(|key| KeyText::parse(key.to_str().ok()?)).map(|key| key.prefix());
        let route = self.route.as_ref().map(MatchedPath::as_str);
        app.note_refusal(&Refusal { reason, address: self.peer.0, key_prefix, route });
    }
}

/// RFC 9112, section 3.2: a request of HTTP/1.1 has one `Host`, which is a host with or without a port. Otherwise a proxy
/// and the app could read two servers from one request.
///
/// # Errors
/// Returns 400.
pub(crate) fn check_host(version: Version, headers: &HeaderMap) -> Result<(), Error> {
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
    is_name(text) || !text.contains(&b'@') && Authority::try_from(text).is_ok()
}

/// Whether this is a name or an IPv4 address, with or without a port. Almost all hosts are, and need no parser.
fn is_name(text: &[u8]) -> bool {
    let mut parts = text.splitn(2, |byte| *byte == b':');
    let (name, port) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    !name.is_empty() && name.iter().all(is_of_name) && port.iter().all(u8::is_ascii_digit)
}
