//! Steps 1 and 7 of 7: the HTTP API, in reading order.

pub mod openapi;
pub mod operations;
pub mod request;
pub mod routes;
pub mod runs;
pub mod workflows;

use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;
use utoipa::OpenApi as _;
use utoipa_swagger_ui::SwaggerUi;

use crate::App;
use request::error::Error;
use request::extract::Deadline;

/// All routes of the table, and the page of their description.
pub fn router(app: App) -> Router {
    routes::router()
        .merge(SwaggerUi::new("/docs").url("/openapi.json", routes::Api::openapi()))
        .fallback(|| async { Error::not_found() })
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(app.clone(), to_its_end))
        .with_state(app)
}

/// Completes each request even if its client disconnects, so that a disconnect cancels no transaction.
///
/// If a request takes longer than the limit, the client gets 408. The request continues, and its edit is committed
/// completely or not at all. A panic fails only its own request.
async fn to_its_end(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let deadline = Instant::now() + Duration::from_millis(app.config.request_timeout_ms);
    request.extensions_mut().insert(Deadline(deadline));
    let task = app.requests.spawn(next.run(request));
    match tokio::time::timeout_at(deadline, task).await {
        Ok(Ok(response)) => response,
        Ok(Err(panic)) => Error::Internal(anyhow::Error::new(panic)).into_response(),
        Err(_) => Error::timeout().into_response(),
    }
}

async fn method_not_allowed() -> Error {
    let detail = "this resource has no such method".to_owned();
    Error::Refused(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}
