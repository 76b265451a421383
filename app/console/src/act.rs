//! The answer to an act that was done: the page to show next, with one sentence about what was done.

use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

use crate::failure::ActFailure;

/// The result of an act.
pub type Act = Result<Response, ActFailure>;

const LOCATION: HeaderName = HeaderName::from_static("hx-location");

/// Shows a page, by its path and query. `done` names the sentence in [`crate::words::done_sentence`].
#[must_use]
pub fn show_next(path: &str, done: &str) -> Response {
    let separator = if path.contains('?') { '&' } else { '?' };
    lead_to(&format!("{path}{separator}done={done}"))
}

/// Leads to a page, by its path and query, without a sentence.
#[must_use]
pub fn lead_to(path: &str) -> Response {
    let location = json!({ "path": path, "target": "#page", "select": "#page", "swap": "outerHTML", "push": "true" });
    match HeaderValue::from_str(&location.to_string()) {
        Ok(location) => (StatusCode::OK, [(LOCATION, location)]).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
