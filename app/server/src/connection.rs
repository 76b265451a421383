//! Steps 1 and 7 of 7: what the app knows of a connection while it is open: its requests and whether one had a key.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;

/// An open connection, shared by the server and by its requests.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The other end, which may be a proxy.
    pub(crate) address: IpAddr,
    is_authenticated: AtomicBool,
    requests: AtomicUsize,
    end: CancellationToken,
}

impl Connection {
    pub(crate) fn new(address: IpAddr) -> Self {
        Self {
            address,
            is_authenticated: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            end: CancellationToken::new(),
        }
    }

    /// Records that a request on it had an active key.
    pub(crate) fn set_authenticated(&self) {
        self.is_authenticated.store(true, Ordering::Relaxed);
    }

    /// Whether it may be ended when there are too many: no request on it had an active key.
    pub(crate) fn is_expendable(&self) -> bool {
        !self.is_authenticated.load(Ordering::Relaxed) && !self.end.is_cancelled()
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

    /// Ends it, to make room for another connection.
    pub(crate) fn end(&self) {
        self.end.cancel();
    }

    /// Waits until [`Connection::end`] is called.
    pub(crate) async fn until_ended(&self) {
        self.end.cancelled().await;
    }
}
