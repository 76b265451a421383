//! Step 7 of 7: notifies the executor of this process, which shortens the wait for its next poll.

use std::sync::Arc;

use tokio::sync::Notify;

/// Notifies the executor of this process that a run was accepted.
#[derive(Clone, Default)]
pub struct Wake(Arc<Notify>);

impl Wake {
    /// Makes the executor claim now.
    pub fn notify(&self) {
        self.0.notify_one();
    }

    pub(super) async fn wait_for_notification(&self) {
        self.0.notified().await;
    }
}
