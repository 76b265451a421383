//! Steps 1 and 7 of 7: what each answer permits a browser and a cache to do.
//!
//! Answers are for programs, except for the page of the API's description. So no browser may run a script that is not a
//! file of the app, show an answer in a frame, or take it for another type of content.

use axum::extract::Request;
use axum::http::header::{self, Entry};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;

/// For every answer. The page of the description has its scripts and styles in files, and its icons in `data:` URLs.
const FOR_BROWSERS: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
];

/// The headers by which callers identify themselves: RFC 9111 protects only answers to requests with `Authorization`.
const IDENTITY: &str = "X-API-Key, Authorization, Cookie";

/// What a cache may keep of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caching {
    /// A read of the API: only the cache of its caller, and only to compare its ETag.
    Private,
    /// A page, or an answer that may have a secret: nothing.
    Nothing,
}

/// Sets these headers; a handler's own `Cache-Control` stays.
pub(super) async fn set_headers(request: Request, next: Next) -> Response {
    let caching = Caching::of(request.method(), request.uri().path());
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in FOR_BROWSERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    caching.set(headers);
    response
}

impl Caching {
    fn of(method: &Method, path: &str) -> Self {
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        if is_read && path.starts_with("/api/") { Self::Private } else { Self::Nothing }
    }

    fn set(self, headers: &mut HeaderMap) {
        let value = match self {
            Self::Private => "private, no-cache",
            Self::Nothing => "no-store",
        };
        if let Entry::Vacant(cache_control) = headers.entry(header::CACHE_CONTROL) {
            cache_control.insert(HeaderValue::from_static(value));
        }
        if self == Self::Private {
            headers.append(header::VARY, HeaderValue::from_static(IDENTITY));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reads_of_the_api_may_be_kept() {
        let of = |method, path| Caching::of(&method, path);
        assert_eq!(of(Method::GET, "/api/v1/workflows/7"), Caching::Private);
        assert_eq!(of(Method::HEAD, "/api/v1/workflows"), Caching::Private);
        assert_eq!(of(Method::POST, "/api/v1/keys"), Caching::Nothing);
        assert_eq!(of(Method::GET, "/docs/"), Caching::Nothing);
        assert_eq!(of(Method::GET, "/metrics"), Caching::Nothing);
    }
}
