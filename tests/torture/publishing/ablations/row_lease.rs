//! V2: claims an outbox row with a lease on it, and commits before the call.

use super::row_publisher::{Done, RowPublisher, read_wanted};

pub(crate) const SETUP: &str = "
    DROP TRIGGER IF EXISTS unverified ON publications;
    DROP TRIGGER IF EXISTS unguarded ON publications;
    CREATE TABLE IF NOT EXISTS row_leases (id bigint PRIMARY KEY, lease_until timestamptz NOT NULL);
    TRUNCATE row_leases;
";

impl RowPublisher {
    /// Processes rows until none is free or a call fails.
    pub(crate) async fn drain_leasing(&self) -> sqlx::Result<()> {
        while let Some((row, workflow)) = self.lease().await? {
            self.turnstile.wait("P4").await;
            let wanted = {
                let mut connection = self.pool.acquire().await?;
                read_wanted(&mut connection, workflow).await?
            };
            if self.call(wanted).await == Done::No {
                return Ok(());
            }
            sqlx::query("UPDATE outbox_events SET processed_on = cronbox_now() WHERE id = $1")
                .bind(row)
                .execute(&self.pool)
                .await?;
            self.turnstile.wait("P10").await;
        }
        Ok(())
    }

    async fn lease(&self) -> sqlx::Result<Option<(i64, i64)>> {
        let mut tx = db::begin_transaction(&self.pool).await?;
        self.turnstile.wait("P2").await;
        let row: Option<(i64, i64)> = sqlx::query_as(
            "SELECT o.id, o.aggregate_id FROM outbox_events AS o
              WHERE o.processed_on IS NULL
                AND NOT EXISTS (SELECT FROM row_leases AS l WHERE l.id = o.id AND l.lease_until > cronbox_now())
              ORDER BY o.id LIMIT 1 FOR UPDATE OF o SKIP LOCKED",
        )
        .fetch_optional(&mut *tx)
        .await?;
        if let Some((row, _)) = row {
            sqlx::query(
                "INSERT INTO row_leases VALUES ($1, cronbox_now() + INTERVAL '60 seconds')
                 ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until",
            )
            .bind(row)
            .execute(&mut *tx)
            .await?;
        }
        tx.commit().await?;
        Ok(row)
    }
}
