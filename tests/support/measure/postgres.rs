//! What the server of a database has used so far: processor time, WAL, and rows that it updated in place.

use std::path::Path;

use db::PgPool;

use super::processes::tree_cpu_secs;

/// Reads the figures of the server behind a pool. The server runs on this machine, and its owner reads its settings.
pub struct PostgresMeter {
    pool: PgPool,
    postmaster: u32,
}

/// What a server has used so far, of all its databases.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PostgresUsage {
    /// Processor time of the server with all its backends, also of those that have ended.
    pub cpu_secs: f64,
    /// Bytes of WAL.
    pub wal_bytes: i64,
}

/// Updates of rows of one database since its statistics began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowUpdates {
    /// All.
    pub updated: i64,
    /// Those that changed no index (HOT).
    pub hot: i64,
}

impl PostgresMeter {
    /// A meter of the server of this pool; panics if its data folder cannot be read.
    pub async fn of(pool: &PgPool) -> Self {
        let folder: String = sqlx::query_scalar("SELECT current_setting('data_directory')")
            .fetch_one(pool)
            .await
            .unwrap_or_else(|error| panic!("the server's data folder is unknown: {error}"));
        let file = Path::new(&folder).join("postmaster.pid");
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let postmaster = text.lines().next().and_then(|line| line.trim().parse().ok());
        let postmaster = postmaster.unwrap_or_else(|| panic!("{} names no process", file.display()));
        Self { pool: pool.clone(), postmaster }
    }

    /// What the server has used so far.
    pub async fn read_usage(&self) -> PostgresUsage {
        // The insert position: with asynchronous commits the write position is behind it.
        let position = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
        let wal_bytes: i64 = sqlx::query_scalar(position)
            .fetch_one(&self.pool)
            .await
            .unwrap_or_else(|error| panic!("the position in the WAL is unknown: {error}"));
        PostgresUsage { cpu_secs: tree_cpu_secs(self.postmaster), wal_bytes }
    }

    /// Updates of rows of this database. A backend reports its own when it ends, or some seconds later.
    pub async fn read_row_updates(&self) -> RowUpdates {
        let sums = "SELECT COALESCE(sum(n_tup_upd), 0)::bigint, COALESCE(sum(n_tup_hot_upd), 0)::bigint
                      FROM pg_stat_user_tables";
        let (updated, hot): (i64, i64) = sqlx::query_as(sums)
            .fetch_one(&self.pool)
            .await
            .unwrap_or_else(|error| panic!("the updates are unknown: {error}"));
        RowUpdates { updated, hot }
    }
}

impl PostgresUsage {
    /// What was used since an earlier reading.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self { cpu_secs: self.cpu_secs - before.cpu_secs, wal_bytes: self.wal_bytes - before.wal_bytes }
    }
}

impl RowUpdates {
    /// The updates since an earlier reading.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self { updated: self.updated - before.updated, hot: self.hot - before.hot }
    }

    /// The share of updates that changed no index; 0 without updates.
    #[expect(clippy::cast_precision_loss, reason = "a number of rows")]
    pub fn hot_share(self) -> f64 {
        if self.updated == 0 { 0.0 } else { self.hot as f64 / self.updated as f64 }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use local::stack::Database;

    use super::*;
    use crate::PATIENCE;

    #[tokio::test]
    async fn writes_move_wal_and_row_counters() {
        let database = Database::clone_template().await.unwrap();
        let pool = db::connect_pool(&app::config::database_options(&database.dsn(), 1)).await.unwrap();
        let meter = PostgresMeter::of(&pool).await;
        let (used, updated) = (meter.read_usage().await, meter.read_row_updates().await);
        // One index, and the updated column is not in it.
        let work = "CREATE TABLE work (id INT PRIMARY KEY, n INT) WITH (fillfactor = 50);
                    INSERT INTO work SELECT nth, 0 FROM generate_series(1, 1000) AS nth;
                    UPDATE work SET n = 1;";
        sqlx::raw_sql(work).execute(&pool).await.unwrap();
        assert!(meter.read_usage().await.since(used).wal_bytes > 50_000);
        let began = Instant::now();
        let since = loop {
            let since = meter.read_row_updates().await.since(updated);
            if since.updated > 0 {
                break since;
            }
            assert!(began.elapsed() < PATIENCE, "the updates are never reported");
            sqlx::query("SELECT pg_stat_force_next_flush()").execute(&pool).await.unwrap();
        };
        assert_eq!(since.updated, 1_000);
        assert!(since.hot_share() > 0.5, "{since:?}");
        pool.close().await;
        database.remove_clone().await.unwrap();
    }

    #[test]
    fn shares_without_updates_are_zero() {
        assert!(RowUpdates::default().hot_share().abs() < 1e-9);
        let since = PostgresUsage { cpu_secs: 3.0, wal_bytes: 9 }.since(PostgresUsage { cpu_secs: 1.0, wal_bytes: 4 });
        assert_eq!(since, PostgresUsage { cpu_secs: 2.0, wal_bytes: 5 });
    }
}
