//! Step 7 of 7: lists the occurrences of many workflows by key: the latest due times first.
//!
//! What did not fire on time is rare, and has an index by time. Ordinary fires have none, because each fire would write it:
//! a list that includes them reads all decisions of its span. Most pages end within its last hour, which is read first.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use workflows::keyset::KeysetPage;

use super::{Decision, Occurrence};

/// What is read first of a span with ordinary fires.
const LAST_HOUR: TimeDelta = TimeDelta::hours(1);

/// Filters of the occurrences of many workflows.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Only those of this team's workflows.
    pub team_id: Option<i64>,
    /// Only occurrences with one of these decisions; all if there is none.
    pub decisions: Vec<Decision>,
    /// Due at or after this time.
    pub from: DateTime<Utc>,
    /// Due before this time.
    pub to: DateTime<Utc>,
    /// Only what comes after this one, the last of the previous page.
    pub after: Option<Key>,
    /// Occurrences on a page at most.
    pub limit: i64,
}

/// The place of an occurrence in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The due time.
    pub time: DateTime<Utc>,
    /// The workflow.
    pub workflow_id: i64,
}

impl Key {
    /// The first place at a time.
    #[must_use]
    pub fn first_at(time: DateTime<Utc>) -> Self {
        Self { time, workflow_id: i64::MIN }
    }

    /// The place of an occurrence.
    #[must_use]
    pub fn of(occurrence: &Occurrence) -> Self {
        Self { time: occurrence.scheduled_time, workflow_id: occurrence.workflow_id }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.time.to_rfc3339(), self.workflow_id)
    }
}

/// The text is not the place of an occurrence.
#[derive(Clone, Copy, Debug)]
pub struct NotAKey;

impl FromStr for Key {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let (time, workflow_id) = text.split_once(',').ok_or(NotAKey)?;
        Ok(Self { time: time.parse().map_err(|_| NotAKey)?, workflow_id: workflow_id.parse().map_err(|_| NotAKey)? })
    }
}

impl Filter {
    /// Whether ordinary fires are listed.
    fn has_fires(&self) -> bool {
        self.decisions.is_empty() || self.decisions.contains(&Decision::Fired)
    }

    /// The end of the span: a place that is not listed any more.
    fn high(&self) -> Key {
        let end = Key::first_at(self.to);
        self.after.map_or(end, |after| after.min(end))
    }

    /// The last hour of the span; `None` if the span is not longer.
    fn last_hour(&self) -> Option<Self> {
        let from = self.high().time - LAST_HOUR;
        (from > self.from).then(|| Self { from, ..self.clone() })
    }

    fn words(&self) -> Option<Vec<String>> {
        let words: Vec<_> = self.decisions.iter().map(|decision| decision.as_str().to_owned()).collect();
        (!words.is_empty()).then_some(words)
    }
}

/// Lists occurrences, the latest due times first. All statements need the same snapshot.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_of_all(db: &mut PgConnection, filter: &Filter) -> sqlx::Result<KeysetPage<Occurrence, Key>> {
    if !filter.has_fires() {
        let rows = read_others(db, filter).await?;
        return page_of(db, filter, rows, false).await;
    }
    if let Some(last_hour) = filter.last_hour() {
        let rows = read_all(db, &last_hour).await?;
        let page = page_of(db, &last_hour, rows, true).await?;
        if page.next.is_some() {
            return Ok(page);
        }
    }
    let rows = read_all(db, filter).await?;
    page_of(db, filter, rows, true).await
}

async fn page_of(
    db: &mut PgConnection,
    filter: &Filter,
    rows: Vec<Occurrence>,
    has_fires: bool,
) -> sqlx::Result<KeysetPage<Occurrence, Key>> {
    let mut page = KeysetPage::of_rows(rows, filter.limit, Key::of);
    if page.next.is_none() {
        page.next = if has_fires { end_of_all(db, filter).await? } else { end_of_others(db, filter).await? };
    }
    Ok(page)
}

/// Selects the occurrences of a page by a comment, and the condition of its rows. `query_as!` accepts only literals.
macro_rules! select_occurrences {
    ($comment:tt, $condition:tt, $filter:expr, $words:expr) => {
        sqlx::query_as!(
            Occurrence,
            $comment
                + r#"
        SELECT o.id, o.workflow_id, o.scheduled_time, o.decision AS "decision: Decision", o.reason, o.revision, o.run_id,
               o.lateness_s, o.decided_on
          FROM (SELECT * FROM occurrences
                 WHERE scheduled_time >= $1 AND scheduled_time <= $2 AND (scheduled_time, workflow_id) < ($2, $3)"#
                + $condition
                + r#"
                 ORDER BY scheduled_time DESC, workflow_id DESC
                 LIMIT 5000) AS o
          JOIN workflows w ON w.id = o.workflow_id
         WHERE ($4::text[] IS NULL OR o.decision = ANY($4)) AND ($5::bigint IS NULL OR w.team_id = $5)
         ORDER BY o.scheduled_time DESC, o.workflow_id DESC
         LIMIT $6
        "#,
            $filter.from,
            $filter.high().time,
            $filter.high().workflow_id,
            $words,
            $filter.team_id,
            $filter.limit + 1,
        )
    };
}

async fn read_others(db: &mut PgConnection, filter: &Filter) -> sqlx::Result<Vec<Occurrence>> {
    let words = filter.words();
    select_occurrences!(
        "-- list the decisions of all workflows by key, without fires\n",
        " AND decision <> 'fired'",
        filter,
        words.as_deref()
    )
    .fetch_all(db)
    .await
}

async fn read_all(db: &mut PgConnection, filter: &Filter) -> sqlx::Result<Vec<Occurrence>> {
    let words = filter.words();
    select_occurrences!("-- list the decisions of all workflows of a span\n", "", filter, words.as_deref())
        .fetch_all(db)
        .await
}

async fn end_of_others(db: &mut PgConnection, filter: &Filter) -> sqlx::Result<Option<Key>> {
    let high = filter.high();
    sqlx::query_as!(
        Key,
        r#"
        -- the last decision without fires that the list read; none: it read all
        SELECT scheduled_time AS time, workflow_id FROM occurrences
         WHERE scheduled_time >= $1 AND scheduled_time <= $2 AND (scheduled_time, workflow_id) < ($2, $3)
           AND decision <> 'fired'
         ORDER BY scheduled_time DESC, workflow_id DESC
        OFFSET 4999 LIMIT 1
        "#,
        filter.from,
        high.time,
        high.workflow_id,
    )
    .fetch_optional(db)
    .await
}

async fn end_of_all(db: &mut PgConnection, filter: &Filter) -> sqlx::Result<Option<Key>> {
    let high = filter.high();
    sqlx::query_as!(
        Key,
        r#"
        -- the last decision of a span that the list read; none: it read all
        SELECT scheduled_time AS time, workflow_id FROM occurrences
         WHERE scheduled_time >= $1 AND scheduled_time <= $2 AND (scheduled_time, workflow_id) < ($2, $3)
         ORDER BY scheduled_time DESC, workflow_id DESC
        OFFSET 4999 LIMIT 1
        "#,
        filter.from,
        high.time,
        high.workflow_id,
    )
    .fetch_optional(db)
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_as_it_was_written() {
        let key = Key { time: "2026-03-02T08:30:00Z".parse().unwrap(), workflow_id: 7 };
        assert_eq!(key.to_string().parse::<Key>().unwrap(), key);
        for text in ["", "7", "2026-03-02T08:30:00Z", "2026-03-02T08:30:00Z,x", "x,7"] {
            assert!(text.parse::<Key>().is_err(), "{text}");
        }
    }
}
