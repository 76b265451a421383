//! Steps 1 and 7 of 7: what the app knows of a connection while it is open: its requests, and whose key they had.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;

/// An open connection, shared by the server and by its requests.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The other end, which may be a proxy.
    pub(crate) address: IpAddr,
    rank: AtomicU8,
    requests: AtomicUsize,
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
    pub(crate) fn new(address: IpAddr, dismissal: CancellationToken) -> Self {
        Self {
            address,
            rank: AtomicU8::new(Rank::Unknown as u8),
            requests: AtomicUsize::new(0),
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

    /// Whether no request on it is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn begin_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_request(&self) {
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
