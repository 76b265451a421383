//! Steps 4 and 5 of 7: refuses the requests that a web page can make the browser of a developer send to this machine.
//!
//! A page of any server may send requests to a port of this machine, without reading their answers. It cannot leave out
//! its `Origin`. It cannot send JSON to another origin without a preflight, which nothing here answers. If the name of its
//! own server suddenly leads to this machine, its `Host` is still that name.

use std::net::IpAddr;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Host,
    Origin,
    ContentType,
}

/// Serves a request, if no web page of another server can have sent it. `listens_on` is the stand-in's address.
pub(crate) async fn refuse_web_pages(State(listens_on): State<IpAddr>, request: Request, next: Next) -> Response {
    match check_headers(request.headers(), listens_on) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

fn check_headers(headers: &HeaderMap, listens_on: IpAddr) -> Result<(), Refusal> {
    let host = text(headers, header::HOST).ok_or(Refusal::Host)?;
    if !is_of_this_machine(host, listens_on) {
        return Err(Refusal::Host);
    }
    if headers.contains_key(header::ORIGIN) && !text(headers, header::ORIGIN).is_some_and(|origin| is_own(origin, host))
    {
        return Err(Refusal::Origin);
    }
    if has_body(headers) && !text(headers, header::CONTENT_TYPE).is_some_and(is_json) {
        return Err(Refusal::ContentType);
    }
    Ok(())
}

/// Whether a name is one of the loopback interface. If the stand-in listens on another address, on purpose, every address
/// counts: only a name could be that of a page's server.
fn is_of_this_machine(host: &str, listens_on: IpAddr) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_address = address.is_ok_and(|address| address.is_loopback() || !listens_on.is_loopback());
    (is_address || name.eq_ignore_ascii_case("localhost")) && !host.contains('@')
}

/// Whether the page that sends a request is of this server.
fn is_own(origin: &str, host: &str) -> bool {
    origin.strip_prefix("http://").is_some_and(|server| server.eq_ignore_ascii_case(host))
}

fn has_body(headers: &HeaderMap) -> bool {
    let length = text(headers, header::CONTENT_LENGTH).unwrap_or("0");
    headers.contains_key(header::TRANSFER_ENCODING) || length != "0"
}

/// What the AWS SDKs send, and any client of the control API must.
fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind.starts_with("application/x-amz-json-")
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).map(HeaderValue::to_str)?.ok()
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, message) = match self {
            Refusal::Host => {
                (StatusCode::FORBIDDEN, "the host must be localhost or an address of the loopback interface")
            }
            Refusal::Origin => (StatusCode::FORBIDDEN, "a web page of another server must not send requests"),
            Refusal::ContentType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "send the body as application/json"),
        };
        (status, Json(json!({ "Message": message }))).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(headers: &[(HeaderName, &'static str)], listens_on: &str) -> Result<(), Refusal> {
        let headers = headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        check_headers(&HeaderMap::from_iter(headers), listens_on.parse().unwrap())
    }

    #[test]
    fn only_names_of_the_loopback_interface_count() {
        for host in ["127.0.0.1:8090", "127.9.9.9", "localhost:8090", "LocalHost", "[::1]:8090"] {
            assert_eq!(checked(&[(header::HOST, host)], "127.0.0.1"), Ok(()), "{host}");
        }
        for host in ["a.example:8090", "localhost.a.example", "127.0.0.1.a.example", "192.0.2.1", "a@127.0.0.1", ""] {
            assert_eq!(checked(&[(header::HOST, host)], "127.0.0.1"), Err(Refusal::Host), "{host}");
        }
        assert_eq!(checked(&[], "127.0.0.1"), Err(Refusal::Host));
        assert_eq!(checked(&[(header::HOST, "192.0.2.1:8090")], "0.0.0.0"), Ok(()));
        assert_eq!(checked(&[(header::HOST, "a.example:8090")], "0.0.0.0"), Err(Refusal::Host));
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let from = |origin| checked(&[(header::HOST, "localhost:8090"), (header::ORIGIN, origin)], "127.0.0.1");
        assert_eq!(from("http://localhost:8090"), Ok(()));
        for origin in
            ["null", "", "http://a.example", "http://localhost", "http://localhost:3000", "https://localhost:8090"]
        {
            assert_eq!(from(origin), Err(Refusal::Origin), "{origin}");
        }
    }

    #[test]
    fn bodies_are_json() {
        let sent = |kind, length| {
            let host = (header::HOST, "localhost");
            checked(&[host, (header::CONTENT_TYPE, kind), (header::CONTENT_LENGTH, length)], "127.0.0.1")
        };
        assert_eq!((sent("application/json; charset=utf-8", "2"), sent("text/plain", "0")), (Ok(()), Ok(())));
        assert_eq!(sent("application/x-amz-json-1.1", "2"), Ok(()));
        for kind in ["text/plain", "text/plain; application/json", "application/x-www-form-urlencoded", ""] {
            assert_eq!(sent(kind, "2"), Err(Refusal::ContentType), "{kind}");
        }
        let chunked = [(header::HOST, "localhost"), (header::TRANSFER_ENCODING, "chunked")];
        assert_eq!(checked(&chunked, "127.0.0.1"), Err(Refusal::ContentType));
    }
}
