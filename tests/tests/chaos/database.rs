//! Postgres cuts publishers and app off in the middle of edits, and is read-only for a while.

use sqlx::AssertSqlSafe;

use crate::field::{Field, Told};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backends_terminated_and_a_read_only_database_in_mid_drain_lose_nothing() {
    let mut field = Field::new(7).await;
    field.staff(3);
    let mut committed = 0;
    for round in 0..20 {
        for _ in 0..5 {
            committed += u32::from(field.edit().await == Told::Committed);
        }
        // It takes effect in the connections that are made next, the app's too.
        field.read_only(round % 4 == 1).await;
        field.terminate_backends().await;
    }
    assert!(committed > 50, "{committed} edits");
    field.settle().await;
    field.judge("after twenty rounds").await;
    field.end().await;
}

impl Field {
    /// All but the one that asks.
    async fn terminate_backends(&self) {
        let terminated = self.story.count(
            "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity
              WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
        assert!(terminated.await > 0, "nobody was connected");
    }

    async fn read_only(&self, is_read_only: bool) {
        let setting =
            if is_read_only { "SET default_transaction_read_only = on" } else { "RESET default_transaction_read_only" };
        let name: String =
            sqlx::query_scalar("SELECT current_database()::text").fetch_one(&self.story.pool).await.unwrap();
        // Read-write of its own: the connection that it comes by may be read-only.
        let alter = format!("BEGIN READ WRITE; ALTER DATABASE {name} {setting}; COMMIT");
        sqlx::raw_sql(AssertSqlSafe(alter)).execute(&self.story.pool).await.unwrap();
    }
}
