//! Steps 1 and 7 of 7: the ETag of what was read, so that a client that has it already gets 304 without a body.
//!
//! | answer | ETag | |
//! |---|---|---|
//! | a workflow, a schedule, a channel, a rule | `"7-<digest>"` | `If-Match` compares only the version before the hyphen |
//! | the limits or the hosts of a team | the same | their version is a digest of what an admin has set: `digest_version` |
//! | another object | `"<digest>"` | |
//! | a page of a list | `W/"<digest>"` | weak, because it may be compressed |
//!
//! The digest is of the whole answer: `sync` and `next_fire_at` change without an edit.

use std::fmt::Write as _;

use axum::Json;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::error::Error;

/// Bytes of the digest: two answers of one address never share it by chance.
const DIGEST: usize = 12;

/// What kind of answer a route has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tagged {
    /// One object.
    Object,
    /// A page of a list, which may be compressed.
    Page,
}

/// An object with its version as ETag.
pub(crate) struct Versioned<T> {
    pub(crate) version: i64,
    pub(crate) view: T,
}

impl<T: Serialize> IntoResponse for Versioned<T> {
    fn into_response(self) -> Response {
        ([(header::ETAG, format!("\"{}\"", self.version))], Json(self.view)).into_response()
    }
}

/// The version of what has no counter of its edits: a number that differs if the value does.
///
/// # Errors
/// Fails if the value is no JSON.
pub(crate) fn digest_version(value: &impl Serialize) -> Result<i64, Error> {
    let text = serde_json::to_vec(value).map_err(anyhow::Error::from)?;
    let mut first = [0; size_of::<i64>()];
    first.copy_from_slice(&Sha256::digest(text)[..size_of::<i64>()]);
    // A tag has no sign before its version.
    Ok(i64::from_be_bytes(first) & i64::MAX)
}

/// Gives an answer its ETag, and leaves out the body of one that the client has.
pub(crate) async fn tag_answer(tagged: Tagged, request: Request, next: Next) -> Result<Response, Error> {
    let known = request.headers().get(header::IF_NONE_MATCH).cloned();
    let answer = next.run(request).await;
    if answer.status() != StatusCode::OK {
        return Ok(answer);
    }
    let (mut parts, body) = answer.into_parts();
    // A page has 1 MiB at most, and is in memory already.
    let body = to_bytes(body, usize::MAX).await.map_err(anyhow::Error::from)?;
    let tag = tag_of(tagged, &parts.headers, &body);
    let is_known = known.is_some_and(|known| names(&known, &tag));
    parts.headers.insert(header::ETAG, tag);
    if is_known {
        parts.status = StatusCode::NOT_MODIFIED;
        parts.headers.remove(header::CONTENT_TYPE);
        parts.headers.remove(header::CONTENT_LENGTH);
        return Ok(Response::from_parts(parts, Body::empty()));
    }
    Ok(Response::from_parts(parts, Body::from(body)))
}

fn tag_of(tagged: Tagged, headers: &HeaderMap, body: &Bytes) -> HeaderValue {
    let mut digest = String::new();
    for byte in &Sha256::digest(body)[..DIGEST] {
        // Writing into a String never fails.
        let _ = write!(digest, "{byte:02x}");
    }
    let version = headers.get(header::ETAG).and_then(|tag| tag.to_str().ok()).map(|tag| tag.trim_matches('"'));
    let tag = match (tagged, version) {
        (Tagged::Page, _) => format!("W/\"{digest}\""),
        (Tagged::Object, Some(version)) => format!("\"{version}-{digest}\""),
        (Tagged::Object, None) => format!("\"{digest}\""),
    };
    HeaderValue::try_from(tag).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

/// Whether `If-None-Match` names a tag, by the weak comparison of RFC 9110.
fn names(known: &HeaderValue, tag: &HeaderValue) -> bool {
    let opaque = |text: &str| text.trim().trim_start_matches("W/").to_owned();
    let (Ok(known), Ok(tag)) = (known.to_str(), tag.to_str()) else { return false };
    known.trim() == "*" || known.split(',').any(|one| opaque(one) == opaque(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_compared_weakly() {
        let tag = HeaderValue::from_static("W/\"ab\"");
        for (known, is_named) in [
            ("\"ab\"", true),
            ("W/\"ab\"", true),
            ("\"x\", \"ab\"", true),
            ("*", true),
            ("\"abc\"", false),
            ("", false),
        ] {
            assert_eq!(names(&HeaderValue::from_static(known), &tag), is_named, "{known}");
        }
    }

    #[test]
    fn other_values_have_other_versions() {
        let version = |hosts: &[&str]| digest_version(&hosts).unwrap();
        assert_eq!(version(&["a.example"]), version(&["a.example"]));
        assert!(version(&["a.example"]) > 0 && version(&["a.example"]) != version(&["b.example"]));
    }

    #[test]
    fn the_version_comes_first() {
        let headers = HeaderMap::from_iter([(header::ETAG, HeaderValue::from_static("\"7\""))]);
        let body = Bytes::from_static(b"{}");
        let digest = "44136fa355b3678a1146ad16";
        assert_eq!(tag_of(Tagged::Object, &headers, &body), format!("\"7-{digest}\""));
        assert_eq!(tag_of(Tagged::Object, &HeaderMap::new(), &body), format!("\"{digest}\""));
        assert_eq!(tag_of(Tagged::Page, &HeaderMap::new(), &body), format!("W/\"{digest}\""));
    }
}
