//! Step 4 of 7: requests that were signed and sent, and have not arrived yet.

use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::extract::Request;
use axum::middleware::Next;
use chrono::{DateTime, Utc};

/// The requests that have not arrived yet; they arrive by the stand-in's clock.
#[derive(Default)]
pub(super) struct LateRequests(Mutex<Vec<Sent>>);

struct Sent {
    arrives_at: DateTime<Utc>,
    request: Request,
    next: Next,
}

impl LateRequests {
    pub(super) fn send_later(&self, arrives_at: DateTime<Utc>, request: Request, next: Next) {
        self.sent().push(Sent { arrives_at, request, next });
    }

    pub(super) fn count_waiting(&self) -> usize {
        self.sent().len()
    }

    /// When the next request arrives.
    pub(super) fn next_due(&self) -> Option<DateTime<Utc>> {
        self.sent().iter().map(|sent| sent.arrives_at).min()
    }

    /// Lets the requests arrive that are due at `now`, in the order of time; their answers are discarded.
    pub(super) async fn receive_due(&self, now: DateTime<Utc>) {
        let mut due: Vec<Sent> = self.sent().extract_if(.., |sent| sent.arrives_at <= now).collect();
        due.sort_by_key(|sent| sent.arrives_at);
        for Sent { request, next, .. } in due {
            let answer = next.run(request).await;
            tracing::info!(status = answer.status().as_u16(), "late request arrived");
        }
    }

    fn sent(&self) -> MutexGuard<'_, Vec<Sent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
