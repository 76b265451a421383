//! How an instance shuts down: first it drains, and, if that takes too long, it hands over at once.

use tokio_util::sync::CancellationToken;

/// Clones are the same shutdown.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    drain: CancellationToken,
    hand_over: CancellationToken,
}

impl Shutdown {
    /// Stops claims and jobs; active runs may end.
    pub fn begin_drain(&self) {
        self.drain.cancel();
    }

    /// Hands over the active runs at once.
    pub fn hand_over(&self) {
        self.drain.cancel();
        self.hand_over.cancel();
    }

    /// Whether the drain has started.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.drain.is_cancelled()
    }

    /// Waits until the drain begins.
    pub async fn wait_for_drain(&self) {
        self.drain.cancelled().await;
    }

    /// Waits until the active runs are to be handed over.
    pub async fn wait_for_hand_over(&self) {
        self.hand_over.cancelled().await;
    }
}

impl From<CancellationToken> for Shutdown {
    /// Creates a shutdown whose drain begins with `drain`, and ends at its limit.
    fn from(drain: CancellationToken) -> Self {
        Self { drain, hand_over: CancellationToken::new() }
    }
}
