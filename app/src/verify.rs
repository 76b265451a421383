//! Step 7 of 7: verification. Compares every due time of a span with its decision, and every decision with its runs.
//!
//! Due times are computed again from the schedule versions, each by the zone data that were in force at it; no cursor
//! is trusted. A span is compared day by day and page by page, so that memory and each transaction stay small for any
//! span and any number of workflows. Each page is read in one snapshot and evaluated off the async threads.

mod cursor;
mod evaluate;
mod read;
mod settled;

use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use db::{PgConnection, PgPool};
use schedule::delivery::SETTLED_AFTER;
use utoipa::ToSchema;
use uuid::Uuid;

use self::evaluate::{Due, Evaluated, Page};
use crate::occurrences::Decision;
use crate::prune::marks;

pub use cursor::{Cursor, Position};

/// The part of the span that is compared in one snapshot.
const SLICE: TimeDelta = TimeDelta::days(1);
/// How many differences and unverified workflows one answer names.
const DIFFERENCES: usize = 1_000;
/// How long one answer may take to compute.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a cursor keeps the bound of its first page.
const CURSOR_LIFE: TimeDelta = TimeDelta::days(1);

/// A span of time, from the first instant to just before the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Inclusive.
    pub from: DateTime<Utc>,
    /// Exclusive.
    pub to: DateTime<Utc>,
}

/// Why a span cannot be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It is empty.
    Empty,
    /// Times before its end are not decided yet; the latest end that is possible.
    NotSettled(DateTime<Utc>),
    /// Times after its start may be pruned; the earliest start that is possible.
    Pruned(DateTime<Utc>),
    /// The cursor names a position outside of the span.
    ForeignCursor,
}

/// How the ledger differs from the schedule, or a decision from its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DifferenceKind)]
pub enum Kind {
    /// The time was due, and no decision is recorded.
    Missing,
    /// A decision is recorded, and the time was not due.
    NotOwed,
    /// The decision says that the time ran, and its run does not exist.
    NoRun,
    /// The time has two automatic runs.
    TwoRuns,
    /// The time has an automatic run that no decision names.
    RunWithoutDecision,
    /// Decision and run contradict each other, for example `missed` and a run of the schedule.
    Contradicted,
}

/// One time on which schedule, decision and runs disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The workflow.
    pub workflow_id: i64,
    /// The time.
    pub scheduled_time: DateTime<Utc>,
    /// The kind of the difference.
    pub kind: Kind,
    /// The recorded decision, if there is one.
    pub decision: Option<Decision>,
    /// The run that disagrees, or that does not exist.
    pub run_id: Option<Uuid>,
}

/// A schedule version whose due times cannot be computed, because its timezone or cron is not known any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unjudged {
    /// The workflow.
    pub workflow_id: i64,
    /// The schedule version.
    pub revision: i64,
}

/// The result of a comparison.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Due times.
    pub owed: u64,
    /// Decisions recorded.
    pub decided: u64,
    /// Decisions for which it cannot be computed whether they were due.
    pub unjudged: u64,
    /// The schedule versions of these decisions.
    pub unjudged_workflows: Vec<Unjudged>,
    /// Workflows with times that have no decision, because the watchdog fails to process them.
    pub undecided_workflows: Vec<i64>,
    /// Where schedule, decisions and runs disagree.
    pub differences: Vec<Difference>,
    /// The first instant that was compared; later than the start of the span if a prune happened meanwhile.
    pub compared_from: DateTime<Utc>,
    /// Where the rest begins; `None`: there is no rest.
    pub next: Option<Cursor>,
}

/// Returns where a verification begins or continues, if its span can be verified at `now`; `kept` is the retention.
///
/// The bound of the first page applies to all pages: rows that are pruned meanwhile are left out and cause no error.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the query.
pub async fn start(
    db: &mut PgConnection,
    span: Span,
    cursor: Option<Cursor>,
    kept: TimeDelta,
    now: DateTime<Utc>,
) -> sqlx::Result<Result<Cursor, Unfit>> {
    if span.from >= span.to {
        return Ok(Err(Unfit::Empty));
    }
    let earliest = match cursor {
        Some(cursor) => cursor.asked_on.clamp(now - CURSOR_LIFE, now) - kept,
        None => marks::occurrences(db).await?.map_or(now - kept, |pruned_before| pruned_before.max(now - kept)),
    };
    if span.from < earliest {
        return Ok(Err(Unfit::Pruned(earliest)));
    }
    let latest = settled::through(db, now - SETTLED_AFTER).await?;
    if span.to > latest {
        return Ok(Err(Unfit::NotSettled(latest)));
    }
    let cursor = cursor.unwrap_or(Cursor { asked_on: now, position: Position::first(span.from) });
    let is_inside = (span.from..span.to).contains(&cursor.position.slice);
    Ok(if is_inside { Ok(cursor) } else { Err(Unfit::ForeignCursor) })
}

/// Compares from `cursor` on, as much as fits into one answer.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a query.
pub async fn compare(pool: &PgPool, span: Span, cursor: Cursor) -> sqlx::Result<Findings> {
    let began = Instant::now();
    let mut findings = Findings::none(span.from);
    let mut at = cursor.position;
    while at.slice < span.to {
        if began.elapsed() > PATIENCE {
            findings.next = Some(Cursor { position: at, ..cursor });
            break;
        }
        let slice = Span { from: at.slice, to: span.to.min(at.slice + SLICE) };
        let page = compare_page(pool, slice, at, findings).await?;
        findings = page.findings;
        at = page.next.unwrap_or_else(|| Position::first(slice.to));
        if page.is_cut {
            findings.next = Some(Cursor { position: at, ..cursor });
            break;
        }
    }
    Ok(findings)
}

/// Compares a page of workflows from a position on; returns where the slice continues, `None` if it is complete.
async fn compare_page(pool: &PgPool, slice: Span, at: Position, mut findings: Findings) -> sqlx::Result<Evaluated> {
    let mut tx = db::begin(pool).await?;
    // So that all rows of a workflow that is deleted meanwhile are seen, or none; the same for a prune and its mark.
    read::one_snapshot(&mut tx).await?;
    let (runs_pruned_before, pruned_before) = marks::read(&mut tx).await?;
    let slice = match pruned_before.map(|pruned| pruned.min(slice.to)) {
        Some(pruned) if pruned > slice.from => {
            findings.compared_from = findings.compared_from.max(pruned);
            Span { from: pruned, ..slice }
        }
        _ => slice,
    };
    let workflows = read::page(&mut tx, at.workflow).await?;
    let ids: Vec<i64> = workflows.iter().map(|workflow| workflow.id).collect();
    let versions = read::versions(&mut tx, &ids, slice).await?;
    let due = off_the_async_threads(move || Due::of(workflows, versions, slice, at)).await?;
    let ids = due.ids();
    let page = Page {
        due,
        decisions: read::decisions(&mut tx, &ids, slice).await?,
        runs: read::runs(&mut tx, &ids, slice).await?,
        runs_pruned_before,
    };
    tx.rollback().await?;
    off_the_async_threads(move || page.evaluate(at, findings)).await
}

async fn off_the_async_threads<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> sqlx::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|_| sqlx::Error::WorkerCrashed)
}

impl Findings {
    fn none(from: DateTime<Utc>) -> Self {
        Self {
            owed: 0,
            decided: 0,
            unjudged: 0,
            unjudged_workflows: Vec::new(),
            undecided_workflows: Vec::new(),
            differences: Vec::new(),
            compared_from: from,
            next: None,
        }
    }

    fn has_room_for(&self, entries: usize) -> bool {
        let unproven = self.unjudged_workflows.len() + self.undecided_workflows.len();
        self.differences.len() + unproven + entries <= DIFFERENCES
    }
}
