//! Step 2 of 7: notifies a listening publisher after an edit has committed.
//!
//! The notification is sent outside of the edit's transaction, because `NOTIFY` serialises commits. It is debounced,
//! because one notification is enough for many edits. If one is lost, the publisher finds the edit at its next poll.

use std::sync::Arc;
use std::time::Duration;

use db::PgPool;
use tokio::sync::Notify;

/// The channel that the publisher listens on.
const CHANNEL: &str = "cronbox_outbox";
/// Edits within this time share one notification.
const DEBOUNCE: Duration = Duration::from_millis(10);

/// Every function that commits an edit has a clone.
#[derive(Clone, Default)]
pub struct Notifier(Arc<Notify>);

impl Notifier {
    /// Requests a notification soon.
    pub fn request_notification(&self) {
        self.0.notify_one();
    }

    /// Sends notifications until the task is dropped.
    pub async fn send_notifications(self, pool: PgPool) {
        loop {
            self.0.notified().await;
            if let Err(error) = send_notification(&pool).await {
                tracing::debug!(%error, "notification not sent; the publisher's poll finds the edit");
            }
            tokio::time::sleep(DEBOUNCE).await;
        }
    }
}

async fn send_notification(pool: &PgPool) -> sqlx::Result<()> {
    sqlx::query!("SELECT pg_notify($1, '')", CHANNEL).execute(pool).await.map(drop)
}
