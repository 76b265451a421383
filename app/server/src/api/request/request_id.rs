//! Steps 1 and 7 of 7: the id of a request, in the header `x-request-id`, in its problem and in its lines of the log.
//!
//! It is the trace id of its `traceparent`, so that the edits and the audit log name the same request.

use axum::http::HeaderValue;

tokio::task_local! {
    /// The request that this task serves.
    static CURRENT: RequestId;
}

/// The id of a request: 32 hexadecimal digits. A fire is a request, so making and copying an id allocates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestId([u8; 32]);

impl RequestId {
    /// A new id.
    pub(crate) fn random() -> Self {
        let mut digits = [b'0'; 32];
        let (high, low) = (rand::random::<u64>(), rand::random::<u64>().max(1));
        for (at, digit) in digits.iter_mut().enumerate() {
            let half = if at < 16 { high } else { low };
            // The highest four bits are the first digit.
            *digit = b"0123456789abcdef"[(half >> (60 - 4 * (at % 16)) & 0xf) as usize];
        }
        Self(digits)
    }

    /// The trace id of a valid `traceparent`.
    pub(crate) fn of_traceparent(traceparent: &str) -> Option<Self> {
        let id = traceparent.split('-').nth(1)?;
        Some(Self(id.as_bytes().try_into().ok()?))
    }

    pub(crate) fn as_str(&self) -> &str {
        // Its digits are ASCII.
        str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The value of the header; `None` cannot happen, because an id is ASCII.
    pub(crate) fn header_value(&self) -> Option<HeaderValue> {
        HeaderValue::from_bytes(&self.0).ok()
    }

    /// Does the work of the request: [`current_id`] is its id meanwhile.
    pub(crate) fn scope<T>(self, work: impl Future<Output = T>) -> impl Future<Output = T> {
        CURRENT.scope(self, work)
    }

    /// As [`RequestId::scope`], for work that waits for nothing.
    pub(crate) fn scope_sync<T>(self, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self, work)
    }
}

/// The id of the request that this task serves; `None` outside of one.
pub(crate) fn current_id() -> Option<RequestId> {
    CURRENT.try_with(|id| *id).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn spawned_work_keeps_the_id() {
        let id = RequestId::of_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa01020304-01").unwrap();
        let kept = tokio::spawn(id.scope(async { current_id() })).await.unwrap();
        assert_eq!(kept.as_ref().map(RequestId::as_str), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        assert_eq!(id.scope_sync(current_id), kept);
        assert_eq!(current_id(), None);
    }

    #[test]
    fn new_ids_are_hexadecimal_and_differ() {
        let (one, other) = (RequestId::random(), RequestId::random());
        assert_ne!(one, other);
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        assert!(one.as_str().len() == 32 && one.as_str().bytes().all(is_digit), "{}", one.as_str());
        assert_eq!(RequestId::of_traceparent("00-short-1-1"), None);
    }
}
