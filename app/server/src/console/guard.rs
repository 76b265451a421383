//! Which requests a browser may send: a write only from a page of the console.
//!
//! A browser sends the cookie of a session with a form of another site, too. It says in `Sec-Fetch-Site` where a request
//! comes from, which no page can forge; a write of a page has the header of htmx besides, which a form cannot send.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use tower_http::compression::predicate::Predicate;

use crate::api::request::error::Error;

/// Refuses a form that another site has sent.
pub(super) async fn only_own_forms(request: Request, next: Next) -> Result<Response, Error> {
    if !is_read(request.method()) && !is_of_this_site(request.headers()) {
        return Err(foreign());
    }
    Ok(next.run(request).await)
}

/// Whether a request changes nothing.
pub(super) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Whether a write comes from a script of the console.
pub(super) fn is_of_a_page(headers: &HeaderMap) -> bool {
    is_of_this_site(headers) && headers.get("hx-request").is_some_and(|value| value == "true")
}

fn is_of_this_site(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|site| site == "same-origin")
}

/// 403.
pub(super) fn foreign() -> Error {
    let detail =
        "the console accepts writes only from its own pages, in a browser that sends Sec-Fetch-Site".to_owned();
    Error::Refused(StatusCode::FORBIDDEN, "foreign_page", detail)
}

/// Whether an answer is compressed: pages and scripts, but not the stream of events, which would wait for a full block.
#[derive(Clone, Copy)]
pub(super) struct IsCompressed;

impl Predicate for IsCompressed {
    fn should_compress<B>(&self, response: &axum::http::Response<B>) -> bool
    where
        B: axum::body::HttpBody,
    {
        let content_type =
            response.headers().get(header::CONTENT_TYPE).and_then(|value: &HeaderValue| value.to_str().ok());
        content_type.is_some_and(|text| !text.starts_with("text/event-stream"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scripts_of_the_console_write() {
        let of = |all: &[(&'static str, &'static str)]| {
            let headers = all.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
            is_of_a_page(&headers.collect())
        };
        assert!(of(&[("sec-fetch-site", "same-origin"), ("hx-request", "true")]));
        assert!(!of(&[("hx-request", "true")]), "an old browser");
        assert!(!of(&[("sec-fetch-site", "same-origin")]), "a form");
        for site in ["cross-site", "same-site", "none"] {
            let headers = HeaderMap::from_iter([
                (header::HeaderName::from_static("sec-fetch-site"), HeaderValue::from_static(site)),
                (header::HeaderName::from_static("hx-request"), HeaderValue::from_static("true")),
            ]);
            assert!(!is_of_a_page(&headers), "{site}");
        }
    }
}
