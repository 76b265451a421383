//! Step 7 of 7: the proof. What every workflow owed over a span, held against the ledger.
//!
//! What was owed is computed anew from the schedule versions alone: neither cursors nor runs are
//! believed. It goes day by day and page by page, so that memory and each transaction stay small
//! whatever the span and however many the workflows; each page is compared in one snapshot.

mod read;

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{PgConnection, PgPool};
use utoipa::ToSchema;

use self::read::{Page, Row, one_snapshot, page, rows, versions, watched_through};
use crate::occurrences::Decision;
use crate::owed;
use crate::versions::Version;

/// What is later than this may still be on its way: the watchdog's grace, and two of its passes.
const SETTLES_IN: TimeDelta = TimeDelta::minutes(5);
/// Of the span, compared in one snapshot.
const SLICE: TimeDelta = TimeDelta::days(1);
/// Differences that one answer names at most, but for those of its last page.
const DIFFERENCES: usize = 1_000;
/// How long one answer may take to compute.
const PATIENCE: Duration = Duration::from_secs(10);

/// A span of time, from the first instant to just before the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Included.
    pub from: DateTime<Utc>,
    /// Excluded.
    pub to: DateTime<Utc>,
}

/// Why a span cannot be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It has no instant.
    Empty,
    /// Its end is not decided yet; the latest end that is.
    NotSettled(DateTime<Utc>),
    /// Its beginning may be pruned; the earliest that is not.
    Pruned(DateTime<Utc>),
}

/// Where a comparison goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    slice: DateTime<Utc>,
    after: i64,
}

/// How the ledger differs from what was owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DifferenceKind)]
pub enum Kind {
    /// It was owed, and nothing is recorded.
    Missing,
    /// It is recorded, and nobody owed it.
    NotOwed,
}

/// One time on which the ledger and the schedule disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The workflow.
    pub workflow_id: i64,
    /// The time.
    pub scheduled_time: DateTime<Utc>,
    /// In which way.
    pub kind: Kind,
    /// What is recorded, if anything is.
    pub decision: Option<Decision>,
}

/// What a comparison found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Times owed.
    pub owed: u64,
    /// Decisions recorded.
    pub decided: u64,
    /// Decisions whose timezone or cron is not known any more: nobody can tell.
    pub unjudged: u64,
    /// Where ledger and schedule disagree.
    pub differences: Vec<Difference>,
    /// Where the rest begins; none: this is all.
    pub next: Option<Cursor>,
}

/// Whether a span can be verified at `now`, of a ledger that keeps its rows for so long.
///
/// # Errors
/// The database's.
pub async fn fit(
    db: &mut PgConnection,
    span: Span,
    kept: TimeDelta,
    now: DateTime<Utc>,
) -> sqlx::Result<Result<(), Unfit>> {
    let earliest = now - kept;
    let latest = watched_through(db).await?.map_or(now - SETTLES_IN, |watched| watched.min(now - SETTLES_IN));
    Ok(match span {
        Span { from, to } if from >= to => Err(Unfit::Empty),
        Span { from, .. } if from < earliest => Err(Unfit::Pruned(earliest)),
        Span { to, .. } if to > latest => Err(Unfit::NotSettled(latest)),
        _ => Ok(()),
    })
}

/// Compares from `cursor` on, as much as fits into one answer.
///
/// # Errors
/// The database's.
pub async fn compare(pool: &PgPool, span: Span, cursor: Option<Cursor>) -> sqlx::Result<Findings> {
    let began = Instant::now();
    let mut findings = Findings::default();
    let mut at = cursor.unwrap_or(Cursor { slice: span.from, after: 0 });
    while at.slice < span.to {
        if began.elapsed() > PATIENCE || findings.differences.len() >= DIFFERENCES {
            findings.next = Some(at);
            break;
        }
        let slice = Span { from: at.slice, to: span.to.min(at.slice + SLICE) };
        at = match compare_page(pool, slice, at.after, &mut findings).await? {
            Some(last) => Cursor { after: last, ..at },
            None => Cursor { slice: slice.to, after: 0 },
        };
    }
    Ok(findings)
}

/// Compares the workflows after one; the last of them, none if there was none.
async fn compare_page(pool: &PgPool, slice: Span, after: i64, findings: &mut Findings) -> sqlx::Result<Option<i64>> {
    let mut tx = db::begin(pool).await?;
    // Versions and rows of a workflow that is deleted meanwhile are seen together or not at all.
    one_snapshot(&mut tx).await?;
    let workflows = page(&mut tx, after).await?;
    let ids: Vec<i64> = workflows.iter().map(|workflow| workflow.id).collect();
    let mut versions = versions(&mut tx, &ids, slice).await?;
    let mut rows = rows(&mut tx, &ids, slice).await?;
    tx.rollback().await?;
    for workflow in workflows {
        let versions = versions.remove(&workflow.id).unwrap_or_default();
        let rows = rows.remove(&workflow.id).unwrap_or_default();
        findings.add(&workflow, slice, &versions, rows);
    }
    Ok(ids.last().copied())
}

impl Findings {
    fn add(&mut self, workflow: &Page, slice: Span, versions: &[Version], rows: Vec<Row>) {
        let kept = |time: DateTime<Utc>| workflow.ledger_since.is_none_or(|since| time > since);
        let just_before = |time: DateTime<Utc>| time - TimeDelta::microseconds(1);
        let owing = owed::owing(versions, just_before(slice.from), just_before(slice.to), usize::MAX);
        let mut rows = rows.into_iter().filter(|row| kept(row.scheduled_time)).peekable();
        let differ =
            |kind, time, decision| Difference { workflow_id: workflow.id, scheduled_time: time, kind, decision };
        let beyond = |findings: &mut Self, row: Row| {
            findings.decided += 1;
            if is_unjudged(versions, &owing.unjudged, row.scheduled_time) {
                findings.unjudged += 1;
            // What came before its time was judged by the timing of then; an edit since cannot take it back.
            } else if row.decision != Decision::SkippedPaused && !row.is_early {
                findings.differences.push(differ(Kind::NotOwed, row.scheduled_time, Some(row.decision)));
            }
        };
        for time in owing.times.iter().map(|owed| owed.time).filter(|time| kept(*time)) {
            self.owed += 1;
            while let Some(row) = rows.next_if(|row| row.scheduled_time < time) {
                beyond(self, row);
            }
            match rows.next_if(|row| row.scheduled_time == time) {
                Some(_) => self.decided += 1,
                None => self.differences.push(differ(Kind::Missing, time, None)),
            }
        }
        rows.for_each(|row| beyond(self, row));
    }
}

fn is_unjudged(versions: &[Version], unjudged: &[i64], time: DateTime<Utc>) -> bool {
    let in_force = versions.iter().rfind(|version| version.valid_from <= time);
    in_force.is_some_and(|version| unjudged.contains(&version.revision))
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.slice.timestamp_micros(), self.after)
    }
}

impl FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (slice, after) = text.split_once('/').ok_or(())?;
        let slice = DateTime::from_timestamp_micros(slice.parse().map_err(drop)?).ok_or(())?;
        Ok(Self { slice, after: after.parse().map_err(drop)? })
    }
}
