//! Step 7 of 7: lists the occurrences of one workflow by key, the newest first, by their UNIQUE index.
//!
//! The bounds of the time are repeated, so that only the partitions of the days between them are read. Most pages are of
//! the last days, so these are read first: Postgres would begin to read each day for each page.

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use workflows::keyset::KeysetPage;

use super::{Decision, Occurrence};

/// The days that are read first.
const LAST_DAYS: TimeDelta = TimeDelta::days(7);

/// No due time is earlier.
pub const FIRST: DateTime<Utc> = DateTime::UNIX_EPOCH;
/// Every due time is earlier: none has a year of five digits.
pub const AFTER_LAST: DateTime<Utc> = match DateTime::from_timestamp(253_402_300_800, 0) {
    Some(year_10000) => year_10000,
    None => DateTime::<Utc>::MAX_UTC,
};

/// Filters of the occurrences of one workflow.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// Only occurrences with this decision.
    pub decision: Option<Decision>,
    /// Due at or after this time.
    pub from: Option<DateTime<Utc>>,
    /// Due before this time.
    pub to: Option<DateTime<Utc>>,
    /// Due before this time, the last of the previous page.
    pub before: Option<DateTime<Utc>>,
    /// Occurrences on a page at most.
    pub limit: i64,
    /// The time of the request: the last days before it are read first.
    pub now: DateTime<Utc>,
}

/// Lists occurrences, the newest first. All statements need the same snapshot.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_occurrences(
    db: &mut PgConnection,
    filter: &Filter,
) -> sqlx::Result<KeysetPage<Occurrence, DateTime<Utc>>> {
    if let Some(last_days) = filter.last_days() {
        let page = list_within(db, &last_days).await?;
        if page.next.is_some() {
            return Ok(page);
        }
    }
    list_within(db, filter).await
}

async fn list_within(db: &mut PgConnection, filter: &Filter) -> sqlx::Result<KeysetPage<Occurrence, DateTime<Utc>>> {
    let rows = read_page(db, filter).await?;
    let mut page = KeysetPage::of_rows(rows, filter.limit, |occurrence| occurrence.scheduled_time);
    if page.next.is_none() && filter.decision.is_some() {
        page.next = end_of_scan(db, filter).await?;
    }
    Ok(page)
}

impl Filter {
    fn low(&self) -> DateTime<Utc> {
        self.from.unwrap_or(FIRST)
    }

    fn high(&self) -> DateTime<Utc> {
        self.to.unwrap_or(AFTER_LAST).min(self.before.unwrap_or(AFTER_LAST))
    }

    /// The last days of the filter; `None` if it has no earlier ones.
    fn last_days(&self) -> Option<Self> {
        let from = self.high().min(self.now) - LAST_DAYS;
        (from > self.low()).then(|| Self { from: Some(from), ..self.clone() })
    }
}

async fn read_page(db: &mut PgConnection, filter: &Filter) -> sqlx::Result<Vec<Occurrence>> {
    sqlx::query_as!(
        Occurrence,
        r#"
        -- list the occurrences of a workflow by key
        SELECT o.id, o.workflow_id, o.scheduled_time, o.decision AS "decision: Decision", o.reason, o.revision, o.run_id,
               o.lateness_s, o.decided_on
          FROM (SELECT * FROM occurrences
                 WHERE scheduled_time >= $2 AND scheduled_time < $3
                   AND (workflow_id, scheduled_time) >= ($1, $2) AND (workflow_id, scheduled_time) < ($1, $3)
                 ORDER BY workflow_id DESC, scheduled_time DESC
                 LIMIT 5000) AS o
         WHERE ($4::text IS NULL OR o.decision = $4)
         ORDER BY o.workflow_id DESC, o.scheduled_time DESC
         LIMIT $5
        "#,
        filter.workflow_id.0,
        filter.low(),
        filter.high(),
        filter.decision as Option<Decision>,
        filter.limit + 1,
    )
    .fetch_all(db)
    .await
}

async fn end_of_scan(db: &mut PgConnection, filter: &Filter) -> sqlx::Result<Option<DateTime<Utc>>> {
    sqlx::query_scalar!(
        r#"
        -- the last occurrence that the list read; none: it read all
        SELECT scheduled_time FROM occurrences
         WHERE scheduled_time >= $2 AND scheduled_time < $3
           AND (workflow_id, scheduled_time) >= ($1, $2) AND (workflow_id, scheduled_time) < ($1, $3)
         ORDER BY workflow_id DESC, scheduled_time DESC
        OFFSET 4999 LIMIT 1
        "#,
        filter.workflow_id.0,
        filter.low(),
        filter.high(),
    )
    .fetch_optional(db)
    .await
}
