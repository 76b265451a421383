//! Steps 1 and 7 of 7: the requests in flight. Each is completed, and a shutdown waits for them.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;

use super::error::Error;
use super::extract::Deadline;
use crate::App;

/// Completes each request even if its client disconnects, so that a disconnect cancels no transaction.
///
/// If a request takes longer than the limit, the client gets 408. The request continues, and its edit is committed
/// completely or not at all. A panic fails only its own request.
pub(crate) async fn complete_request(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let deadline = Instant::now() + Duration::from_millis(app.config.request_timeout_ms);
    request.extensions_mut().insert(Deadline(deadline));
    let task = app.requests.spawn(next.run(request));
    match tokio::time::timeout_at(deadline, task).await {
        Ok(Ok(response)) => response,
        Ok(Err(panic)) => Error::Internal(anyhow::Error::new(panic)).into_response(),
        Err(_) => Error::timeout().into_response(),
    }
}

/// Waits until the current requests have ended; the caller starts no more.
pub(crate) async fn await_requests(app: &App) {
    app.requests.close();
    app.requests.wait().await;
}
