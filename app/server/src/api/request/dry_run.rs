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
use tracing::Instrument as _;
use workflows::audit::dry_run::{DryChange, run_dry};
use workflows::definition::field::FieldError;

use super::conditions::{Conditions, refuse_unevaluated};
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

/// Executes a write, or only finds out what it would change. Refuses it if its client sent a precondition that it does not
/// evaluate.
pub(crate) async fn write_or_dry_run(
    evaluated: Conditions,
    mut request: Request,
    next: Next,
) -> Result<Response, Error> {
    refuse_unevaluated(request.headers(), evaluated)?;
    if !take_parameter(request.uri_mut())? {
        return Ok(next.run(request).await);
    }
    // Nothing is created that a repeat could name.
    request.headers_mut().remove(access::repeats::IDEMPOTENCY_KEY);
    // The span marks the log lines of edits that are not made.
    let (answer, changes) = run_dry(next.run(request).instrument(tracing::info_span!("dry_run"))).await;
    if !answer.status().is_success() {
        return Ok(answer);
    }
    let view = ChangesView { changes: changes.into_iter().map(ChangeView::from).collect() };
    let text = serde_json::to_vec(&view).map_err(anyhow::Error::from)?;
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}

/// Takes the parameter out of the query, and of a dry run also `wait`: no handler needs to know them. Returns whether it is a
/// dry run.
///
/// A value that is not understood is refused, and so is every other parameter: the write must not happen instead of the dry run
/// that a client meant with `dryrun=true`.
fn take_parameter(uri: &mut Uri) -> Result<bool, FieldError> {
    let refuse = || FieldError::invalid(DRY_RUN, "dry_run must be true or false, and sent once");
    let Some(query) = uri.query() else { return Ok(false) };
    let pairs: Vec<(String, String)> = serde_html_form::from_str(query).map_err(|_| refuse())?;
    if let Some((other, _)) = pairs.iter().find(|(name, _)| name != DRY_RUN && name != WAIT) {
        let detail = format!("a write has no parameter {other}: it has dry_run, and wait if it edits a workflow");
        return Err(FieldError::new("unknown_field", other.clone(), detail));
    }
    let sent: Vec<&str> = pairs.iter().filter(|(name, _)| name == DRY_RUN).map(|(_, value)| &**value).collect();
    let is_dry = match sent[..] {
        [] => return Ok(false),
        ["true"] => true,
        ["false"] => false,
        _ => return Err(refuse()),
    };
    let kept: Vec<_> = pairs.iter().filter(|(name, _)| !(name == DRY_RUN || is_dry && name == WAIT)).collect();
    let rest = serde_html_form::to_string(kept).map_err(|_| refuse())?;
    let mark = if rest.is_empty() { "" } else { "?" };
    *uri = format!("{}{mark}{rest}", uri.path()).parse().map_err(|_| refuse())?;
    Ok(is_dry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_leaves_the_query() {
        for (given, is_dry, rest) in [
            ("/a?dry_run=true&wait=5", true, "/a"),
            ("/a?wait=5&dry_run=false", false, "/a?wait=5"),
            ("/a?dry%5Frun=true", true, "/a"),
            ("/a", false, "/a"),
        ] {
            let mut uri: Uri = given.parse().unwrap();
            assert_eq!(take_parameter(&mut uri), Ok(is_dry), "{given}");
            assert_eq!(uri.to_string(), rest, "{given}");
        }
    }

    /// Otherwise the write would happen.
    #[test]
    fn what_is_not_understood_is_refused() {
        for given in
            ["/a?dry_run", "/a?dry_run=1", "/a?dry_run=TRUE", "/a?dry_run=false&dry_run=true", "/a?dry_runs=true"]
        {
            assert!(take_parameter(&mut given.parse().unwrap()).is_err(), "{given}");
        }
    }
}
