//! Steps 1 and 7 of 7: the id of a request, in the header `x-request-id`, in its problem and in its lines of the log.
//!
//! It is the trace id of its `traceparent`, so that the edits and the audit log name the same request.

use std::sync::Arc;

use axum::http::HeaderValue;

tokio::task_local! {
    /// The request that this task serves.
    static CURRENT: RequestId;
}

/// The id of a request: 32 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestId(Arc<str>);

impl RequestId {
    /// The trace id of a valid `traceparent`.
    pub(crate) fn of_traceparent(traceparent: &str) -> Self {
        Self(traceparent.split('-').nth(1).unwrap_or_default().into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The value of the header; `None` cannot happen, because an id is ASCII.
    pub(crate) fn header_value(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(&self.0).ok()
    }

    /// Does the work of the request: [`current_id`] is its id meanwhile.
    pub(crate) async fn scope<T>(self, work: impl Future<Output = T>) -> T {
        CURRENT.scope(self, work).await
    }
}

/// The id of the request that this task serves; `None` outside of one.
pub(crate) fn current_id() -> Option<RequestId> {
    CURRENT.try_with(RequestId::clone).ok()
}

/// Keeps the id of the current request for work that another task may do.
pub(crate) fn keep_id<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    let id = current_id();
    async move {
        match id {
            Some(id) => id.scope(work).await,
            None => work.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn spawned_work_keeps_the_id() {
        let id = RequestId::of_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa01020304-01");
        let kept = id.clone().scope(async { tokio::spawn(keep_id(async { current_id() })).await.unwrap() }).await;
        assert_eq!(kept.as_ref().map(RequestId::as_str), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        assert_eq!(keep_id(async { current_id() }).await, None);
    }
}
