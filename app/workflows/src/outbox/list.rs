//! Step 2 of 7: lists outbox rows by key, the newest first. Pending and failed rows are in a partition of their own, so
//! that a list of them reads no history; other filters pass over rows.

use chrono::{DateTime, Utc};
use db::PgConnection;

use super::operate::{Row, Status};
use crate::keyset::KeysetPage;

/// Filters of a list of rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    /// With this status.
    pub status: Option<Status>,
    /// Of one workflow.
    pub workflow_id: Option<i64>,
    /// Created before this time.
    pub created_before: Option<DateTime<Utc>>,
    /// Only rows before this one, the last of the previous page.
    pub before: Option<i64>,
    /// Rows on a page at most.
    pub limit: i64,
}

/// Lists rows, the newest first. Both statements need the same snapshot.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_rows(db: &mut PgConnection, filter: Filter) -> sqlx::Result<KeysetPage<Row, i64>> {
    let rows = match filter.status {
        Some(Status::Pending) => read_pending(db, filter).await?,
        Some(Status::Failed) => read_failed(db, filter).await?,
        Some(Status::Processed | Status::Discarded) | None => read_page(db, filter).await?,
    };
    let mut page = KeysetPage::of_rows(rows, filter.limit, |row| row.id);
    if page.next.is_none() && (filter.status.is_some() || filter.workflow_id.is_some()) {
        page.next = match filter.status {
            Some(Status::Pending) => end_of_pending(db, filter).await?,
            Some(Status::Failed) => end_of_failed(db, filter).await?,
            Some(Status::Processed | Status::Discarded) | None => end_of_scan(db, filter).await?,
        };
    }
    Ok(page)
}

impl Filter {
    fn before(self) -> i64 {
        self.before.unwrap_or(i64::MAX)
    }
}

/// Selects the rows of a page by a comment, a condition on the rows that it reads, and further arguments. `query_as!`
/// accepts only literals.
macro_rules! select_rows {
    ($comment:tt, $scope:tt, $filter:expr) => {
        sqlx::query_as!(
            Row,
            $comment
                + r#"
        SELECT o.id AS "id!", o.aggregate_id AS "workflow_id!", o.op AS "op!", o.payload AS "payload!",
               o.status AS "status!: Status", o.created_on AS "created_on!", o.processed_on, o.failed_on,
               o.attempt_count AS "attempt_count!", o.error_message,
               p.error_class AS "error_class?", p.due_at AS "due_at?"
          FROM (SELECT e.id, e.aggregate_id, e.op, e.payload, outbox_status(e) AS status, e.created_on, e.processed_on,
                       e.failed_on, e.attempt_count, e.error_message
                  FROM outbox_events AS e
                 WHERE e.id < $1 AND ($5::timestamptz IS NULL OR e.created_on < $5) "#
                + $scope
                + r#"
                 ORDER BY e.id DESC
                 LIMIT 5000) AS o
          LEFT JOIN publications AS p ON p.workflow_id = o.aggregate_id
         WHERE ($2::text IS NULL OR o.status = $2) AND ($3::bigint IS NULL OR o.aggregate_id = $3)
         ORDER BY o.id DESC
         LIMIT $4
        "#,
            $filter.before(),
            $filter.status as Option<Status>,
            $filter.workflow_id,
            $filter.limit + 1,
            $filter.created_before,
        )
    };
}

async fn read_page(db: &mut PgConnection, filter: Filter) -> sqlx::Result<Vec<Row>> {
    select_rows!("-- list the outbox by key\n", "", filter).fetch_all(db).await
}

async fn read_pending(db: &mut PgConnection, filter: Filter) -> sqlx::Result<Vec<Row>> {
    select_rows!(
        "-- list pending outbox rows by key, by idx_outbox_unprocessed\n",
        "AND e.processed_on IS NULL AND e.failed_on IS NULL",
        filter
    )
    .fetch_all(db)
    .await
}

async fn read_failed(db: &mut PgConnection, filter: Filter) -> sqlx::Result<Vec<Row>> {
    select_rows!(
        "-- list failed outbox rows by key\n",
        "AND e.processed_on IS NULL AND e.failed_on IS NOT NULL",
        filter
    )
    .fetch_all(db)
    .await
}

async fn end_of_scan(db: &mut PgConnection, filter: Filter) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the last outbox row that the list read; none: it read all
        SELECT id FROM outbox_events
         WHERE id < $1 AND ($2::timestamptz IS NULL OR created_on < $2)
         ORDER BY id DESC
        OFFSET 4999 LIMIT 1
        "#,
        filter.before(),
        filter.created_before,
    )
    .fetch_optional(db)
    .await
}

async fn end_of_pending(db: &mut PgConnection, filter: Filter) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the last pending outbox row that the list read; none: it read all
        SELECT id FROM outbox_events
         WHERE id < $1 AND ($2::timestamptz IS NULL OR created_on < $2) AND processed_on IS NULL AND failed_on IS NULL
         ORDER BY id DESC
        OFFSET 4999 LIMIT 1
        "#,
        filter.before(),
        filter.created_before,
    )
    .fetch_optional(db)
    .await
}

async fn end_of_failed(db: &mut PgConnection, filter: Filter) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the last failed outbox row that the list read; none: it read all
        SELECT id FROM outbox_events
         WHERE id < $1 AND ($2::timestamptz IS NULL OR created_on < $2) AND processed_on IS NULL AND failed_on IS NOT NULL
         ORDER BY id DESC
        OFFSET 4999 LIMIT 1
        "#,
        filter.before(),
        filter.created_before,
    )
    .fetch_optional(db)
    .await
}
