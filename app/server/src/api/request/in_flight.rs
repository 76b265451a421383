//! Steps 1 and 7 of 7: the requests in flight. One that may change something is completed, and a shutdown waits for all.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt as _;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use traces::Span;

use super::error::Error;
use super::extract::BODY_LIMIT;
use super::request_id::RequestId;
use super::timed_body::end_body_at;
use crate::App;

/// Runs a request until it ends or its time is over; then the client gets 408. A panic fails only its own request.
///
/// A read is dropped with its time, and with its client: then its work has no use. Every other request is completed, so
/// that a disconnect cancels no transaction: its edit is committed completely or not at all. Only its body ends with its time.
pub(crate) async fn run_request(app: &App, id: RequestId, span: &Span, request: Request, next: Next) -> Response {
    let deadline = Instant::now() + Duration::from_millis(app.config.request_timeout_ms);
    let mut request = request.map(|body| end_body_at(body, deadline));
    // For whatever reads a body without a limit of its own: axum's is 2 MiB.
    DefaultBodyLimit::max(BODY_LIMIT).apply(&mut request);
    let kind = if matches!(*request.method(), Method::GET | Method::HEAD) { Kind::Read } else { Kind::Change };
    let work = id.scope(span.scope(next.run(request)));
    match run_until(&app.requests, deadline, kind, work).await {
        Ok(response) => response,
        Err(error) => id.scope_sync(|| error.into_response()),
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Change,
}

async fn run_until(
    requests: &TaskTracker,
    deadline: Instant,
    kind: Kind,
    work: impl Future<Output = Response> + Send + 'static,
) -> Result<Response, Error> {
    let work = requests.track_future(AssertUnwindSafe(work).catch_unwind());
    let ended = match kind {
        Kind::Read => tokio::time::timeout_at(deadline, work).await,
        Kind::Change => {
            let task = tokio::time::timeout_at(deadline, tokio::spawn(work)).await;
            task.map(|ended| ended.unwrap_or_else(|lost| Err(Box::new(lost))))
        }
    };
    match ended {
        Ok(Ok(response)) => Ok(response),
        // The panic hook has logged the place.
        Ok(Err(_)) => Err(Error::Internal(anyhow::anyhow!("a request panicked"))),
        Err(_) => Err(Error::timeout()),
    }
}

/// Waits until the current requests have ended; the caller starts no more.
pub(crate) async fn await_requests(app: &App) {
    app.requests.close();
    app.requests.wait().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work that never ends, in a request whose client has disconnected: how many requests are in flight then.
    async fn in_flight_after_disconnect(kind: Kind) -> usize {
        let requests = TaskTracker::default();
        let deadline = Instant::now() + Duration::from_secs(600);
        let mut request = Box::pin(run_until(&requests, deadline, kind, std::future::pending()));
        assert!(tokio::time::timeout(Duration::ZERO, &mut request).await.is_err());
        tokio::task::yield_now().await;
        drop(request);
        tokio::task::yield_now().await;
        requests.len()
    }

    #[tokio::test]
    async fn only_reads_end_with_their_client() {
        assert_eq!(in_flight_after_disconnect(Kind::Read).await, 0);
        assert_eq!(in_flight_after_disconnect(Kind::Change).await, 1);
    }

    #[tokio::test]
    async fn a_panic_fails_its_own_request() {
        let requests = TaskTracker::default();
        for kind in [Kind::Read, Kind::Change] {
            let deadline = Instant::now() + Duration::from_secs(600);
            let error = run_until(&requests, deadline, kind, async { panic!("on purpose") }).await.unwrap_err();
            assert_eq!(error.into_response().status(), 500, "{kind:?}");
        }
        assert!(requests.is_empty());
    }
}
