//! Steps 1 and 7 of 7: what every request passes before its route, and its answer after it.
//!
//! One layer for all of it: a layer of axum copies the service behind it and allocates its future for each request, and a
//! fire is a request.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::access_log::Line;
use super::request::in_flight::run_request;
use super::request::refused::{RefusedRequest, check_host};
use super::response_headers::AnswerHeaders;
use crate::App;

/// Answers a request: with its id, a line in the log, the headers for browsers and caches, and a note if it is refused.
pub(super) async fn serve_request(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let line = Line::begin(&app.metrics.requests, &mut request);
    let headers = AnswerHeaders::of_request(&request);
    let refused = RefusedRequest::of_request(&request);
    let mut response = match check_host(request.version(), request.headers()) {
        Ok(()) => run_request(&app, line.id(), line.span(), request, next).await,
        Err(error) => line.id().scope_sync(|| error.into_response()),
    };
    line.id().scope_sync(|| refused.note(&app, &response));
    headers.set(response.headers_mut());
    line.end(&mut response);
    response
}
