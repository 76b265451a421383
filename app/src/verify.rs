//! Step 7 of 7: the proof. Every due time of a span against its decision, every decision against its runs.
//!
//! Due times are computed anew from the schedule versions, each by the zone data that were in force at it: no
//! cursor is believed. A span is compared day by
//! day and page by page, so that memory and each transaction stay small whatever the span and however many
//! the workflows; each page is read in one snapshot and evaluated off the async threads.

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

/// Of the span, compared in one snapshot.
const SLICE: TimeDelta = TimeDelta::days(1);
/// Differences and workflows that are not proven that one answer names at most.
const DIFFERENCES: usize = 1_000;
/// How long one answer may take to compute.
const PATIENCE: Duration = Duration::from_secs(10);
/// A cursor keeps the bound of its first page for so long.
const CURSOR_LIFE: TimeDelta = TimeDelta::days(1);

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
    /// The cursor names a place outside the span.
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
    /// In which way.
    pub kind: Kind,
    /// What is recorded, if anything is.
    pub decision: Option<Decision>,
    /// The run that disagrees, or that does not exist.
    pub run_id: Option<Uuid>,
}

/// A schedule version whose due times cannot be computed: its timezone or cron is unknown to this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unjudged {
    /// The workflow.
    pub workflow_id: i64,
    /// The schedule version.
    pub revision: i64,
}

/// What a comparison found.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Due times.
    pub owed: u64,
    /// Decisions recorded.
    pub decided: u64,
    /// Decisions for which it cannot be computed whether they were due.
    pub unjudged: u64,
    /// The schedule versions behind that.
    pub unjudged_workflows: Vec<Unjudged>,
    /// Workflows with times that have no decision, because the watchdog fails to process them.
    pub undecided_workflows: Vec<i64>,
    /// Where schedule, decisions and runs disagree.
    pub differences: Vec<Difference>,
    /// The first instant that was compared: later than the span's if a prune came in between.
    pub compared_from: DateTime<Utc>,
    /// Where the rest begins; none: this is all.
    pub next: Option<Cursor>,
}

/// Says where a proof begins or goes on, if its span can be verified at `now`; `kept` is the retention.
///
/// The first page's bound holds for all pages of a proof: what is pruned meanwhile is left out, not an error.
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

/// Compares a page of workflows from a position on; says where the slice goes on, none if it is complete.
async fn compare_page(pool: &PgPool, slice: Span, at: Position, mut findings: Findings) -> sqlx::Result<Evaluated> {
    let mut tx = db::begin(pool).await?;
    // Rows of a workflow that is deleted meanwhile, and a prune with its mark, are seen together or not at all.
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
