//! Steps 1 and 7 of 7: what the app knows of a connection while it is open: its requests, and whose key they had.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// How long a new connection keeps its place without an answer. Otherwise the next one would take the place before the
/// request has arrived, and of two honest clients that meet on a full server one would lose its connection.
pub(crate) const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// An open connection, shared by the server and by its requests.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The other end, which may be a proxy.
    pub(crate) address: IpAddr,
    opened: Instant,
    rank: AtomicU8,
    requests: AtomicUsize,
    was_answered: AtomicBool,
    dismissal: CancellationToken,
    end: CancellationToken,
}

/// The clients of a connection: the higher, the longer it keeps its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// No request had an active key.
    Unknown,
    /// A request had an active key, or a person's token.
    Known,
    /// A request had an active key of a scheduler.
    Scheduler,
}

impl Connection {
    /// `dismissal` is cancelled when the server stops.
    pub(crate) fn new(address: IpAddr, opened: Instant, dismissal: CancellationToken) -> Self {
        Self {
            address,
            opened,
            rank: AtomicU8::new(Rank::Unknown as u8),
            requests: AtomicUsize::new(0),
            was_answered: AtomicBool::new(false),
            dismissal,
            end: CancellationToken::new(),
        }
    }

    /// Records that a request on it had an active key.
    pub(crate) fn raise_rank(&self, rank: Rank) {
        self.rank.fetch_max(rank as u8, Ordering::Relaxed);
    }

    /// Whether clients of this rank, and no others, have used it, and nothing has ended it yet.
    pub(crate) fn is_expendable(&self, rank: Rank) -> bool {
        let is_leaving = self.end.is_cancelled() || self.dismissal.is_cancelled();
        !is_leaving && self.rank.load(Ordering::Relaxed) == rank as u8
    }

    /// Whether it has had no answer yet, and may still wait for the first one.
    pub(crate) fn is_new(&self, now: Instant) -> bool {
        !self.was_answered.load(Ordering::Relaxed) && now.saturating_duration_since(self.opened) < FIRST_ANSWER
    }

    /// Whether no request on it is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn begin_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_request(&self) {
        self.was_answered.store(true, Ordering::Relaxed);
        self.requests.fetch_sub(1, Ordering::Relaxed);
    }

    /// Ends it at once, to make room for another connection.
    pub(crate) fn end(&self) {
        self.end.cancel();
    }

    /// Ends it after the answer to its present request.
    pub(crate) fn dismiss(&self) {
        self.dismissal.cancel();
    }

    /// Waits until [`Connection::end`] is called.
    pub(crate) async fn until_ended(&self) {
        self.end.cancelled().await;
    }

    /// Waits until [`Connection::dismiss`] is called, or until the server stops.
    pub(crate) async fn until_dismissed(&self) {
        self.dismissal.cancelled().await;
    }
}
