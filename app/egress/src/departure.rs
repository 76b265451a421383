//! Step 7 of 7: the moment at which a request is sent. Before it, an attempt can be handed over as if it had never
//! started.

use std::future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use schedule::Moment;

const OPEN: u8 = 0;
const LEFT: u8 = 1;
const PREVENTED: u8 = 2;

/// Whether a request was sent or must not be sent; the first decision is final. Clones share the decision.
#[derive(Clone, Debug, Default)]
pub struct Departure(Arc<Decision>);

#[derive(Debug, Default)]
struct Decision {
    made: AtomicU8,
    /// After this time the request must not be sent; `None` = it may always.
    until: Mutex<Option<Moment>>,
}

impl Departure {
    /// Permits the request until this time, because the run may belong to another instance then.
    pub fn permit_until(&self, until: Moment) {
        *self.0.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Decides that the request is sent now; returns false if sending was prevented, or comes too late.
    #[must_use]
    pub fn try_to_leave(&self) -> bool {
        // A process may have been stopped, or its machine suspended, for longer than its lease, and go on here.
        let until = *self.0.until.lock().unwrap_or_else(PoisonError::into_inner);
        if until.is_some_and(|until| Moment::now() > until) && self.try_to_prevent() {
            return false;
        }
        self.decide(LEFT)
    }

    /// Decides that the request must not be sent; returns false if it was sent.
    #[must_use]
    pub fn try_to_prevent(&self) -> bool {
        self.decide(PREVENTED)
    }

    /// Decides that the request is sent; if sending was prevented, waits until the attempt is cancelled.
    pub async fn leave_or_wait(&self) {
        if !self.try_to_leave() {
            future::pending::<()>().await;
        }
    }

    /// Whether the request may have reached the receiver.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.0.made.load(Ordering::SeqCst) == LEFT
    }

    /// Whether sending was prevented.
    #[must_use]
    pub fn is_prevented(&self) -> bool {
        self.0.made.load(Ordering::SeqCst) == PREVENTED
    }

    fn decide(&self, decision: u8) -> bool {
        match self.0.made.compare_exchange(OPEN, decision, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => true,
            Err(decided) => decided == decision,
        }
    }
}

/// A request body that decides the departure when its first byte is read.
///
/// hyper reads the body of an HTTP/1 request after the connection (with TLS) is established, and before it writes the
/// head.
pub struct Departing {
    bytes: Option<Bytes>,
    departure: Departure,
}

impl Departing {
    /// A body of these bytes.
    #[must_use]
    pub fn new(bytes: impl Into<Bytes>, departure: &Departure) -> Self {
        Self { bytes: Some(bytes.into()).filter(|bytes: &Bytes| !bytes.is_empty()), departure: departure.clone() }
    }
}

impl Body for Departing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(bytes) = self.bytes.take() else { return Poll::Ready(None) };
        Poll::Ready(Some(if self.departure.try_to_leave() {
            Ok(Frame::data(bytes))
        } else {
            Err(io::Error::other("the attempt was handed over, so its request is not sent"))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
