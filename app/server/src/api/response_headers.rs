//! Steps 1 and 7 of 7: what each answer permits a browser and a cache to do.
//!
//! Answers are for programs, except for the page of the API's description. So no browser may run a script that is not a
//! file of the app, show an answer in a frame, or take it for another type of content.

use axum::extract::Request;
use axum::http::header::{self, Entry};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::request::client_address::came_by_https;

/// For every answer.
const FOR_BROWSERS: [(HeaderName, HeaderValue); 3] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
];
/// What an answer may load: nothing, because it is read by programs.
const POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
/// What a page may load: files of the app, and its forms lead nowhere else. That of the description has its scripts and styles in files, and its icons in `data:` URLs.
const POLICY_OF_PAGES: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
);

/// For answers to requests that came by https: a browser uses it for the next year, too.
const HTTPS_ONLY: HeaderValue = HeaderValue::from_static("max-age=31536000");

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

/// What the answer to a request gets.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerHeaders {
    caching: Caching,
    is_page: bool,
    came_by_https: bool,
}

impl AnswerHeaders {
    pub(super) fn of_request(request: &Request) -> Self {
        let path = request.uri().path();
        let came_by_https = came_by_https(request.headers());
        Self { caching: Caching::of(request.method(), path), is_page: !path.starts_with("/api/"), came_by_https }
    }

    /// Sets these headers; a handler's own `Cache-Control` stays.
    pub(super) fn set(self, headers: &mut HeaderMap) {
        // At once, because a map that grows hashes all its names again.
        headers.reserve(FOR_BROWSERS.len() + 5);
        for (name, value) in FOR_BROWSERS {
            headers.insert(name, value);
        }
        headers.insert(header::CONTENT_SECURITY_POLICY, if self.is_page { POLICY_OF_PAGES } else { POLICY });
        if self.came_by_https {
            headers.insert(header::STRICT_TRANSPORT_SECURITY, HTTPS_ONLY);
        }
        self.caching.set(headers);
    }
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
