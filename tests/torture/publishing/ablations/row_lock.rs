//! V1: claims an outbox row, and keeps it locked during the call.

use super::row_publisher::{Done, RowPublisher, read_wanted};

impl RowPublisher {
    /// Processes rows until none is free or a call fails.
    pub(crate) async fn drain_under_lock(&self) -> sqlx::Result<()> {
        loop {
            let mut tx = db::begin_transaction(&self.pool).await?;
            self.turnstile.wait("P2").await;
            let row: Option<(i64, i64)> = sqlx::query_as(
                "SELECT id, aggregate_id FROM outbox_events WHERE processed_on IS NULL
                  ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED",
            )
            .fetch_optional(&mut *tx)
            .await?;
            let Some((row, workflow)) = row else { return Ok(()) };
            let wanted = read_wanted(&mut tx, workflow).await?;
            if self.call(wanted).await == Done::No {
                return Ok(());
            }
            sqlx::query("UPDATE outbox_events SET processed_on = cronbox_now() WHERE id = $1")
                .bind(row)
                .execute(&mut *tx)
                .await?;
            self.turnstile.wait("P9").await;
            tx.commit().await?;
            self.turnstile.wait("P10").await;
        }
    }
}
