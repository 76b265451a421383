//! Steps 1 and 7 of 7: the body of a request, which ends with the time of the request.
//!
//! A change is completed in a task of its own, also after its client got 408. Without an end of its own, the body would live
//! there for as long as the client keeps its connection, with all bytes that were read.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

/// The body was not complete at the end of the time of its request.
#[derive(Debug, thiserror::Error)]
#[error("the body was not complete in time")]
pub(super) struct BodyTooLate;

/// A body that fails at a time.
struct TimedBody {
    /// `None`: it has failed, so that its connection can end.
    body: Option<Body>,
    deadline: Instant,
    /// It is created when the body is waited for: most bodies arrive with their headers.
    end: Option<Pin<Box<Sleep>>>,
}

/// Returns the same body, which fails if it is not complete at the deadline.
pub(super) fn end_body_at(body: Body, deadline: Instant) -> Body {
    if body.is_end_stream() { body } else { Body::new(TimedBody { body: Some(body), deadline, end: None }) }
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        if let read @ Poll::Ready(_) = Pin::new(body).poll_frame(context) {
            return read;
        }
        let deadline = this.deadline;
        let end = this.end.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        ready!(end.as_mut().poll(context));
        this.body = None;
        Poll::Ready(Some(Err(axum::Error::new(BodyTooLate))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use axum::body::to_bytes;
    use futures::stream;

    use super::*;

    /// The task of a change waited for the rest of the body for as long as its client kept the connection.
    #[tokio::test]
    async fn unfinished_bodies_end_with_their_request() {
        let unfinished = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let reading = to_bytes(end_body_at(unfinished, Instant::now()), usize::MAX);
        let read = tokio::time::timeout(Duration::from_secs(60), reading).await.expect("it never ends");
        let error = anyhow::Error::new(read.unwrap_err());
        assert!(error.chain().any(<dyn std::error::Error>::is::<BodyTooLate>), "{error:#}");
    }

    #[tokio::test]
    async fn complete_bodies_are_read_at_any_time() {
        let complete = end_body_at(Body::from("all of it"), Instant::now());
        assert_eq!(complete.size_hint().exact(), Some(9));
        assert_eq!(to_bytes(complete, usize::MAX).await.unwrap(), "all of it");
    }
}
