//! How often each statement of a database was executed, and how many buffers it read, by `pg_stat_statements`.
//!
//! So the statements are those of the code, with the plans that the server chose for them.

use sqlx::{Connection as _, PgConnection, Row as _};

use crate::statements::statement_label;

/// Counts the statements of all sessions of a database that begin after [`StatementStatistics::enable_on`].
pub struct StatementStatistics(PgConnection);

/// The figures of one statement since they were last reset.
#[derive(Clone, Debug, PartialEq)]
pub struct StatementFigures {
    /// Its identity: the same for each execution in this database.
    pub query_id: i64,
    /// Its first comment, or the beginning of its text.
    pub label: String,
    /// How often it was executed.
    pub calls: i64,
    /// How many buffers it read, in memory and on disk.
    pub buffers: i64,
    /// How many rows it returned or changed.
    pub rows: i64,
    /// How many bytes of WAL it wrote.
    pub wal_bytes: i64,
}

impl StatementFigures {
    /// Buffers per execution.
    #[expect(clippy::cast_precision_loss, reason = "a number of buffers")]
    pub fn buffers_per_call(&self) -> f64 {
        self.buffers as f64 / self.calls.max(1) as f64
    }

    /// Rows per execution.
    #[expect(clippy::cast_precision_loss, reason = "a number of rows")]
    pub fn rows_per_call(&self) -> f64 {
        self.rows as f64 / self.calls.max(1) as f64
    }
}

impl StatementStatistics {
    /// Makes all later sessions of this database count their statements. `dsn` is a superuser's; its own session counts
    /// none.
    pub async fn enable_on(dsn: &str) -> Self {
        let mut connection = PgConnection::connect(dsn).await.unwrap_or_else(|error| panic!("no connection: {error}"));
        let enable = "SET pg_stat_statements.track = 'none';
                      SET statement_timeout = 0;
                      CREATE EXTENSION IF NOT EXISTS pg_stat_statements;
                      DO $$ BEGIN
                          EXECUTE format('ALTER DATABASE %I SET pg_stat_statements.track = ''top''', current_database());
                      END $$;";
        if let Err(error) = sqlx::raw_sql(enable).execute(&mut connection).await {
            panic!("statements cannot be counted: {error}; install Postgres's contrib modules (pg_stat_statements)");
        }
        Self(connection)
    }

    /// Forgets what was counted so far.
    pub async fn reset_figures(&mut self) {
        let reset = "SELECT pg_stat_statements_reset(0, oid, 0) FROM pg_database WHERE datname = current_database()";
        sqlx::raw_sql(reset).execute(&mut self.0).await.unwrap_or_else(|error| panic!("not reset: {error}"));
    }

    /// The figures of each statement, those with the most buffers first.
    pub async fn read_figures(&mut self) -> Vec<StatementFigures> {
        let read = "SELECT queryid, min(query) AS query, sum(calls)::bigint AS calls,
                           sum(shared_blks_hit + shared_blks_read)::bigint AS buffers,
                           sum(rows)::bigint AS rows, sum(wal_bytes)::bigint AS wal_bytes
                      FROM pg_stat_statements
                     WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
                     GROUP BY queryid
                     ORDER BY buffers DESC";
        let rows = sqlx::query(read).fetch_all(&mut self.0).await;
        let rows = rows.unwrap_or_else(|error| panic!("the figures cannot be read: {error}"));
        let figures = rows.iter().map(|row| StatementFigures {
            query_id: row.get("queryid"),
            label: statement_label(row.get("query")),
            calls: row.get("calls"),
            buffers: row.get("buffers"),
            rows: row.get("rows"),
            wal_bytes: row.get("wal_bytes"),
        });
        figures.collect()
    }

    /// The session that counts nothing, for statements of the measurement itself.
    pub fn uncounted(&mut self) -> &mut PgConnection {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use local::stack::Database;

    use super::*;

    #[tokio::test]
    async fn only_later_sessions_are_counted() {
        let database = Database::clone_template().await.unwrap();
        let mut statistics = StatementStatistics::enable_on(&database.dsn()).await;
        let mut session = PgConnection::connect(&database.dsn()).await.unwrap();
        sqlx::query("SELECT 'before'").execute(&mut session).await.unwrap();
        statistics.reset_figures().await;
        for _ in 0..3 {
            let count = "-- count types: each row is read\nSELECT count(*) FROM pg_type WHERE typname <> $1";
            sqlx::query(count).bind("x").execute(&mut session).await.unwrap();
        }
        sqlx::query("SELECT 1").execute(statistics.uncounted()).await.unwrap();
        let figures = statistics.read_figures().await;
        let counted: Vec<_> = figures.iter().map(|figure| (&*figure.label, figure.calls, figure.rows)).collect();
        assert_eq!(counted, [("count types", 3, 3)]);
        assert!(figures[0].buffers_per_call() >= 5.0, "{figures:?}");
        session.close().await.unwrap();
        database.remove_clone().await.unwrap();
    }
}
