//! Step 1 of 7: which preconditions of RFC 9110 a write evaluates. It is refused if its client sent another one: without it
//! the write could replace what the client has never read.
//!
//! | header | a write evaluates it |
//! |---|---|
//! | `If-Match` with tags | where the object has a version: [`Conditions::Version`] |
//! | `If-Match: *` | always: it is true of what exists, and what does not exist is 404; or `Existence` |
//! | `If-None-Match: *` | where the write may create the object: [`Conditions::Existence`] |
//! | `If-Unmodified-Since` | never, because no object has a date of its last change |
//!
//! Reads are not concerned: there `If-None-Match` has a meaning of its own (`etag.rs`), and browsers and proxies add it. OpenAPI
//! describes neither `If-None-Match` nor `*`.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use workflows::definition::field::FieldError;

use super::error::Error;

/// Which preconditions a write evaluates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conditions {
    /// None but `If-Match: *`.
    None,
    /// Versions of the object.
    Version,
    /// Whether the object exists, because the write may create it.
    Existence,
    /// Both of them.
    VersionAndExistence,
}

impl Conditions {
    /// Whether it compares the versions of `If-Match` with that of the object.
    #[must_use]
    pub fn has_version(self) -> bool {
        matches!(self, Self::Version | Self::VersionAndExistence)
    }

    /// Whether it evaluates `If-None-Match: *`.
    #[must_use]
    pub fn has_existence(self) -> bool {
        matches!(self, Self::Existence | Self::VersionAndExistence)
    }
}

/// What a header with tags says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Nothing,
    /// `*`
    Any,
    Tags,
}

fn read_tags(headers: &HeaderMap, name: HeaderName) -> Sent {
    let mut lines = headers.get_all(name).iter().map(|line| line.as_bytes().trim_ascii());
    match (lines.next(), lines.next()) {
        (None, _) => Sent::Nothing,
        (Some(b"*"), None) => Sent::Any,
        _ => Sent::Tags,
    }
}

/// Refuses a write with a condition that it does not evaluate.
///
/// # Errors
/// Returns 412 for `If-None-Match: *`, because the target of every other write exists, be it a list, and 400 for a header that
/// says more than the write understands.
pub(super) fn refuse_unevaluated(headers: &HeaderMap, evaluated: Conditions) -> Result<(), Error> {
    let unknown = |header: &str, detail: &str| -> Error { FieldError::new("unknown_field", header, detail).into() };
    if read_tags(headers, header::IF_MATCH) == Sent::Tags && !evaluated.has_version() {
        let detail = "this write compares no version, and the last one wins: send it without If-Match";
        return Err(unknown("If-Match", detail));
    }
    match read_tags(headers, header::IF_NONE_MATCH) {
        Sent::Nothing => Ok(()),
        Sent::Any if evaluated.has_existence() => Ok(()),
        Sent::Any => {
            Err(refuse("only a PUT that may create its object evaluates If-None-Match: send this write without it"))
        }
        Sent::Tags => {
            Err(unknown("If-None-Match", "a write compares no tags with If-None-Match: send * or leave it out"))
        }
    }
}

/// Whether an object that a write creates or replaces must exist: `If-Match: *`, `If-None-Match: *`.
pub(crate) struct Existence {
    if_match: Sent,
    if_none_match: Sent,
}

/// An object before a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Existing,
    Absent,
}

impl Existence {
    /// Refuses the write of an object that must exist and does not, or that must not exist and does.
    ///
    /// # Errors
    /// Returns 412.
    pub(crate) fn check(&self, object: &str, found: Found) -> Result<(), Error> {
        match found {
            Found::Existing if self.if_none_match == Sent::Any => Err(refuse(&format!(
                "the {object} exists already: to replace it, send the request without If-None-Match"
            ))),
            Found::Absent if self.if_match == Sent::Any => {
                Err(refuse(&format!("the {object} does not exist: to create it, send the request without If-Match")))
            }
            Found::Existing | Found::Absent => Ok(()),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Existence {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self {
            if_match: read_tags(&parts.headers, header::IF_MATCH),
            if_none_match: read_tags(&parts.headers, header::IF_NONE_MATCH),
        })
    }
}

fn refuse(detail: &str) -> Error {
    Error::Refused(StatusCode::PRECONDITION_FAILED, "version_mismatch", detail.to_owned())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn headers_of_tags_are_read() {
        for (lines, sent) in [
            (vec![], Sent::Nothing),
            (vec!["*"], Sent::Any),
            (vec![" * "], Sent::Any),
            (vec!["\"7\""], Sent::Tags),
            (vec!["*", "\"7\""], Sent::Tags),
            (vec![""], Sent::Tags),
        ] {
            let mut headers = HeaderMap::new();
            for &line in &lines {
                headers.append(header::IF_MATCH, HeaderValue::from_static(line));
            }
            assert_eq!(read_tags(&headers, header::IF_MATCH), sent, "{lines:?}");
        }
    }
}
