//! Steps 1 and 7 of 7: parses bodies, queries and paths, so that handlers get valid values only.

use axum::body::{Bytes, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use schedule::WorkflowId;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::str::FromStr;
use utoipa::IntoParams;
use workflows::definition::field::{self, FieldError};
use workflows::definition::patch::PatchKind;

use super::error::Error;
use super::json::parse_body;
use super::limits::EditPlace;
use super::request_id::{RequestId, current_id};
use super::timed_body::BodyTooLate;

/// Largest request body in bytes: more than the largest action needs.
pub(super) const BODY_LIMIT: usize = 256 * 1024;
/// Largest form of the console in bytes: a character of a text that its API reads may take three bytes in a form.
pub(crate) const CONSOLE_FORM_LIMIT: usize = 3 * BODY_LIMIT;
/// Largest form of a client that is not known yet, in bytes: a key, and the encoded address of the page that it leads back to.
const SMALL_FORM_LIMIT: usize = 8 * 1024;

/// A required JSON body.
pub struct Body<T>(pub T);

/// An optional JSON body.
pub struct OptionalBody<T>(pub T);

/// A small form, of a client that is not known yet.
pub(crate) struct SmallForm<T>(pub(crate) T);

/// The body of a verb without options.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmptyBody {}

/// The document of a PATCH, and its format.
pub struct Patch(pub serde_json::Map<String, Value>, pub PatchKind);

/// The members of a JSON object.
#[derive(Deserialize)]
pub(crate) struct Members(pub(crate) Map<String, Value>);

/// The query; an unknown field is an error.
pub struct Params<T>(pub T);

/// `{id}` of a path.
pub struct Id<T>(pub T);

/// `{id}:verb` of a path, split here because the router has no such patterns.
pub struct Verb<T>(pub T, pub String);

/// `If-Match`.
pub enum IfMatch {
    /// The header was not sent: the last writer wins.
    Anything,
    /// One of these versions.
    Versions(Vec<i64>),
}

impl IfMatch {
    /// Refuses an edit if the client saw another version than the current one. `object` is what the client must read again.
    pub(crate) fn check_version(&self, object: &str, version: i64) -> Result<(), Error> {
        match self {
            Self::Anything => Ok(()),
            Self::Versions(versions) if versions.contains(&version) => Ok(()),
            Self::Versions(_) => Err(Error::Refused(
                StatusCode::PRECONDITION_FAILED,
                "version_mismatch",
                format!("the {object} has version {version} now: read it again"),
            )),
        }
    }
}

/// How long a write waits for EventBridge.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WriteParams {
    /// Seconds, at most 25, to wait until EventBridge has applied the edit; `sync.status` is the result.
    pub wait: Option<u64>,
}

/// What a request to edit a workflow has besides its key and its body.
pub struct EditRequest {
    /// The workflow.
    pub id: WorkflowId,
    /// Its headers and its query.
    pub head: EditHead,
}

/// The headers and the query of a request to edit a workflow.
pub struct EditHead {
    /// The `traceparent` of what the edit causes.
    pub trace: String,
    /// Which versions the client has seen.
    pub if_match: IfMatch,
    /// How many seconds the client waits for EventBridge; not validated yet.
    pub wait: Option<u64>,
    /// Its place among the edits of the team.
    pub place: EditPlace,
}

/// The `traceparent` of what the request causes.
pub struct Trace(pub String);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self, Error> {
        content_type(request.headers(), &["application/json"])?;
        parse_body(&read_body(request).await?).map(Self)
    }
}

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalBody<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self, Error> {
        let headers = request.headers().clone();
        let bytes = read_body(request).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        content_type(&headers, &["application/json"])?;
        parse_body(&bytes).map(Self)
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for SmallForm<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self, Error> {
        content_type(request.headers(), &["application/x-www-form-urlencoded"])?;
        parse_pairs(&read_at_most(request, SMALL_FORM_LIMIT).await?).map(Self)
    }
}

impl<S: Send + Sync> FromRequest<S> for Patch {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self, Error> {
        let kind = match content_type(request.headers(), &["application/json", "application/merge-patch+json"])? {
            "application/json" => PatchKind::Replace,
            _ => PatchKind::Merge,
        };
        let Members(members) = parse_body(&read_body(request).await?)?;
        Ok(Self(members, kind))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Error> {
        parse_pairs(parts.uri.query().unwrap_or_default().as_bytes()).map(Self)
    }
}

impl<T: FromStr, S: Send + Sync> FromRequestParts<S> for Id<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let Path(target) = Path::<String>::from_request_parts(parts, state).await.map_err(|_| Error::not_found())?;
        target.parse().map(Self).map_err(|_| Error::not_found())
    }
}

impl<T: FromStr, S: Send + Sync> FromRequestParts<S> for Verb<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let Path(target) = Path::<String>::from_request_parts(parts, state).await.map_err(|_| Error::not_found())?;
        let (id, verb) = target.rsplit_once(':').ok_or_else(Error::not_found)?;
        Ok(Self(id.parse().map_err(|_| Error::not_found())?, verb.to_owned()))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Error> {
        let Some(value) = parts.headers.get(header::IF_MATCH) else { return Ok(Self::Anything) };
        let text = value.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(Self::Anything);
        }
        // By RFC 9110 a weak tag never matches in If-Match. The version comes before the digest of an answer.
        let tags = text.split(',').filter_map(|tag| tag.trim().strip_prefix('"')?.strip_suffix('"'));
        let versions =
            tags.filter_map(|tag| tag.split_once('-').map_or(tag, |(version, _digest)| version).parse().ok());
        Ok(Self::Versions(versions.collect()))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Trace {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(read_traceparent(&parts.headers)))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for EditRequest {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let Id(id) = Id::<WorkflowId>::from_request_parts(parts, state).await?;
        traces::current_span().set("cronbox.workflow.id", id.0);
        Ok(Self { id, head: EditHead::from_request_parts(parts, state).await? })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for EditHead {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let trace = read_traceparent(&parts.headers);
        let if_match = IfMatch::from_request_parts(parts, state).await?;
        let Params(WriteParams { wait }) = Params::<WriteParams>::from_request_parts(parts, state).await?;
        let place = parts.extensions.get::<EditPlace>().cloned().unwrap_or_default();
        Ok(Self { trace, if_match, wait, place })
    }
}

/// Returns an object in place of a body that was not sent.
#[must_use]
pub fn or_empty(body: Value) -> Value {
    if body.is_null() { Value::Object(Map::new()) } else { body }
}

/// Parses a query or a form.
fn parse_pairs<T: DeserializeOwned>(pairs: &[u8]) -> Result<T, Error> {
    let deserializer = serde_html_form::Deserializer::from_bytes(pairs);
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        // A field that is repeated has no number for its client.
        let path = error.path().to_string();
        let field = path.split('[').next().unwrap_or_default();
        field::from_serde("", field, &error.into_inner().to_string()).into()
    })
}

/// Reads the complete body, up to the size limit. It fails if it is not complete at the end of the request's time.
///
/// # Errors
/// Returns 413, 408, or 400 for a body that ended early.
pub async fn read_body(request: Request) -> Result<Bytes, Error> {
    read_at_most(request, BODY_LIMIT).await
}

async fn read_at_most(request: Request, limit: usize) -> Result<Bytes, Error> {
    to_bytes(request.into_body(), limit).await.map_err(|error| {
        let error = anyhow::Error::new(error);
        if error.chain().any(<dyn std::error::Error>::is::<http_body_util::LengthLimitError>) {
            let detail = format!("the body is larger than {} KiB", limit / 1024);
            Error::Refused(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
        } else if error.chain().any(<dyn std::error::Error>::is::<BodyTooLate>) {
            Error::timeout()
        } else {
            FieldError::new("incomplete_body", "", "the body ended before its announced length: send it again").into()
        }
    })
}

/// Refuses a body that is not JSON.
///
/// # Errors
/// Returns 415.
pub(crate) fn must_be_json(headers: &HeaderMap) -> Result<(), Error> {
    content_type(headers, &["application/json"]).map(drop)
}

fn content_type<'a>(headers: &HeaderMap, accepted: &[&'a str]) -> Result<&'a str, Error> {
    let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = sent.split(';').next().unwrap_or_default().trim();
    accepted.iter().find(|kind| kind.eq_ignore_ascii_case(essence)).copied().ok_or_else(|| {
        Error::Refused(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            format!("send the body as {}", accepted.join(" or ")),
        )
    })
}

/// W3C Trace Context.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Returns the `traceparent` that the client sent, if it is valid.
pub(crate) fn sent_traceparent(headers: &HeaderMap) -> Option<&str> {
    headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()).filter(|text| is_traceparent(text))
}

/// Returns the `traceparent` of what the request causes: that of its span, or without one that of the client, or a new one
/// with the id of the request.
fn read_traceparent(headers: &HeaderMap) -> String {
    let of_span = traces::current_span().traceparent();
    of_span.or_else(|| sent_traceparent(headers).map(str::to_owned)).unwrap_or_else(new_traceparent)
}

/// W3C Trace Context, version 00.
fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let hex =
        |part: &str, length| part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    matches!(parts[..], ["00", trace, span, flags] if hex(trace, 32) && hex(span, 16) && hex(flags, 2)
        && trace.contains(|c| c != '0') && span.contains(|c| c != '0'))
}

/// A traceparent with the id of the current request.
pub(crate) fn new_traceparent() -> String {
    let id = current_id().unwrap_or_else(RequestId::random);
    format!("00-{}-{:016x}-01", id.as_str(), rand::random::<u64>().max(1))
}
