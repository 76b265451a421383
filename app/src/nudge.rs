//! Step 2 of 7: tells a listening publisher that there is work, after the edit has committed.
//!
//! Outside the writer's transaction, because `NOTIFY` serialises commits; debounced, because one
//! word is enough for a storm of edits. A lost word costs nothing but the publisher's next poll.

use std::sync::Arc;
use std::time::Duration;

use db::PgPool;
use tokio::sync::Notify;

/// The channel that the publisher listens on.
const CHANNEL: &str = "cronbox_outbox";
/// Edits within this time of a word share the next one.
const DEBOUNCE: Duration = Duration::from_millis(10);

/// Handed to whoever commits an edit.
#[derive(Clone, Default)]
pub struct Nudge(Arc<Notify>);

impl Nudge {
    /// Says, soon, that there is work.
    pub fn poke(&self) {
        self.0.notify_one();
    }

    /// Passes the word on until the task is dropped.
    pub async fn run(self, pool: PgPool) {
        loop {
            self.0.notified().await;
            if let Err(error) = notify(&pool).await {
                tracing::debug!(%error, "nudge lost; the publisher's poll finds the work");
            }
            tokio::time::sleep(DEBOUNCE).await;
        }
    }
}

async fn notify(pool: &PgPool) -> sqlx::Result<()> {
    sqlx::query!("SELECT pg_notify($1, '')", CHANNEL).execute(pool).await.map(drop)
}
