//! Builds a new index of a table by days, partition by partition, while rows are written.
//!
//! Postgres builds no index of a partitioned table `CONCURRENTLY`, and no migration can loop over the days outside of a
//! transaction. So the indexes of the partitions are built before the migrations, and the migration that creates the
//! index of the table takes them over in a moment.

use sqlx::error::DatabaseError;
use sqlx::{AssertSqlSafe, PgConnection};

/// An index of a table by days that may have many rows when the index is created.
struct PartitionedIndex {
    name: &'static str,
    table: &'static str,
    /// What the name of a partition's index has after the name of the partition.
    suffix: &'static str,
    /// What follows the table in `CREATE INDEX`, as the migration has it.
    definition: &'static str,
}

/// Migration 131 creates it. A migration that drops an index removes its entry.
const INDEXES: [PartitionedIndex; 1] = [PartitionedIndex {
    name: "idx_runs_retry_of",
    table: "runs_ended",
    suffix: "_retry_of",
    definition: "(retry_of) WHERE retry_of IS NOT NULL",
}];

/// SQLSTATE of a table that does not exist.
const UNDEFINED_TABLE: &str = "42P01";

/// Builds the indexes of all partitions of each table that exists and lacks its index. Those that exist stay, so a call
/// continues where an interrupted one ended.
///
/// # Errors
/// Fails if an index cannot be built, for example because a transaction on its partition lasts longer than `lock_timeout`.
pub(super) async fn build_partition_indexes(connection: &mut PgConnection) -> sqlx::Result<()> {
    for index in &INDEXES {
        let statements = list_builds(index, connection).await?;
        if !statements.is_empty() {
            tracing::info!(
                index = index.name,
                partitions = statements.len(),
                "index is built, one partition at a time"
            );
        }
        for statement in statements {
            build(statement, connection).await?;
        }
    }
    Ok(())
}

async fn list_builds(index: &PartitionedIndex, connection: &mut PgConnection) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar(
        "-- list_builds: none if the table does not exist yet, as in an empty database
         SELECT format('CREATE INDEX CONCURRENTLY IF NOT EXISTS %I ON %I %s', 'idx_' || c.relname::text || $3::text, c.relname, $4::text)
           FROM pg_partition_tree(to_regclass($1::text)) t JOIN pg_class c ON c.oid = t.relid
          WHERE t.isleaf AND to_regclass($2::text) IS NULL
          ORDER BY c.relname",
    )
    .bind(index.table)
    .bind(index.name)
    .bind(index.suffix)
    .bind(index.definition)
    .fetch_all(&mut *connection)
    .await
}

async fn build(statement: String, connection: &mut PgConnection) -> sqlx::Result<()> {
    // Its names are quoted by Postgres, and its text is ours.
    match sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *connection).await {
        // The job prune has dropped the day since it was listed.
        Err(error) if error.as_database_error().and_then(DatabaseError::code).as_deref() == Some(UNDEFINED_TABLE) => {
            Ok(())
        }
        done => done.map(drop),
    }
}

/// Whether `name` is that of an index which [`build_partition_indexes`] builds.
pub(super) fn is_partition_index(name: &str) -> bool {
    INDEXES.iter().any(|index| {
        let partition = name.strip_prefix("idx_").and_then(|rest| rest.strip_suffix(index.suffix));
        let day = partition.and_then(|partition| partition.strip_prefix(index.table));
        day.is_some_and(|day| {
            day.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit())
        })
    })
}
