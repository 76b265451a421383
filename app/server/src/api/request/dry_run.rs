//! Steps 1 and 7 of 7: `?dry_run=true`: a write is executed, nothing of it is committed, and the answer says what it would
//! change.
//!
//! It is refused for the same reasons as the write. So no handler has a second path that could differ from the first.
//!
//! docs/api.md describes it, OpenAPI does not: a client that is generated would read the answer as that of the write.

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;
use workflows::audit::dry_run::{DryChange, run_dry};
use workflows::definition::field::FieldError;

use super::error::Error;

/// The parameter of every write.
const DRY_RUN: &str = "dry_run";
/// What the database cannot know yet: the end of a dry run would wait for it.
const WAIT: &str = "wait";
/// The type of the answer, which is not that of the write.
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/vnd.cronbox.dry-run+json");

/// What a write would change.
#[derive(Serialize)]
pub struct ChangesView {
    /// Each object with what would differ; none: the write would change nothing.
    changes: Vec<ChangeView>,
}

/// What a write would change of one object.
#[derive(Serialize)]
pub struct ChangeView {
    /// What would be done: `create`, `update`, `pause`, ..
    verb: String,
    /// The object: `workflow:12`. The id of a new one is not final.
    subject: String,
    /// What differs, as it is; null for a new object. A large value is its digest, as in the audit log.
    before: Option<Value>,
    /// What differs, as it would be; null for an object that would be gone.
    after: Option<Value>,
}

impl From<DryChange> for ChangeView {
    fn from(change: DryChange) -> Self {
        Self { verb: change.verb, subject: change.subject, before: change.before, after: change.after }
    }
}

/// Executes a write, or only finds out what it would change.
pub(crate) async fn write_or_dry_run(mut request: Request, next: Next) -> Result<Response, Error> {
    let Some(value) = take_parameter(request.uri_mut()) else { return Ok(next.run(request).await) };
    match &*value {
        "false" => return Ok(next.run(request).await),
        "true" => {}
        _ => return Err(FieldError::invalid(DRY_RUN, "dry_run must be true or false").into()),
    }
    // Nothing is created that a repeat could name.
    request.headers_mut().remove(access::repeats::IDEMPOTENCY_KEY);
    let (answer, changes) = run_dry(next.run(request)).await;
    if !answer.status().is_success() {
        return Ok(answer);
    }
    let view = ChangesView { changes: changes.into_iter().map(ChangeView::from).collect() };
    let text = serde_json::to_vec(&view).map_err(anyhow::Error::from)?;
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}

/// Takes the parameter out of the query, and of a dry run also `wait`: no handler needs to know them.
fn take_parameter(uri: &mut Uri) -> Option<String> {
    let query = uri.query()?;
    let is = |pair: &str, name: &str| pair.split('=').next() == Some(name);
    let value =
        query.split('&').find(|pair| is(pair, DRY_RUN))?.split_once('=').map_or("", |(_, value)| value).to_owned();
    let kept: Vec<&str> =
        query.split('&').filter(|pair| !(is(pair, DRY_RUN) || value == "true" && is(pair, WAIT))).collect();
    let path = uri.path();
    let rest = if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) };
    *uri = rest.parse().ok()?;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_leaves_the_query() {
        for (given, value, rest) in [
            ("/a?dry_run=true&wait=5&x=1", Some("true"), "/a?x=1"),
            ("/a?wait=5&dry_run=false", Some("false"), "/a?wait=5"),
            ("/a?dry_run", Some(""), "/a"),
            ("/a?dry_runs=true", None, "/a?dry_runs=true"),
            ("/a", None, "/a"),
        ] {
            let mut uri: Uri = given.parse().unwrap();
            assert_eq!(take_parameter(&mut uri).as_deref(), value, "{given}");
            assert_eq!(uri.to_string(), rest, "{given}");
        }
    }
}
