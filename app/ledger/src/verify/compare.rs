//! Step 7 of 7: verifies a span, slice by slice and page by page.

use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use db::{PgConnection, PgPool};
use schedule::delivery::SETTLED_AFTER;

use super::evaluate::{Due, Evaluated, Page};
use super::latest_end::find_latest_end;
use super::read::{Ids, read_decisions, read_runs, read_workflows};
use super::{Cursor, Findings, Position, Span, Unfit};
use crate::freezes::read_freezes;
use crate::prune_marks;
use crate::versions;

/// The part of the span that is compared in one snapshot: a day.
const SLICE: TimeDelta = TimeDelta::days(1);
/// How long one answer may take to compute.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a cursor keeps the bound of its first page.
const CURSOR_LIFE: TimeDelta = TimeDelta::days(1);

/// Returns where a verification begins or continues, if its span can be verified at `now`; `kept` is the retention.
///
/// The bound of the first page applies to all pages: rows that are pruned meanwhile are left out and cause no error.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the query.
pub async fn find_start(
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
        Some(cursor) => cursor.requested_on.clamp(now - CURSOR_LIFE, now) - kept,
        None => prune_marks::read_occurrences_mark(db)
            .await?
            .map_or(now - kept, |pruned_before| pruned_before.max(now - kept)),
    };
    if span.from < earliest {
        return Ok(Err(Unfit::Pruned(earliest)));
    }
    let latest = find_latest_end(db, now - SETTLED_AFTER).await?;
    if span.to > latest {
        return Ok(Err(Unfit::NotSettled(latest)));
    }
    let cursor = cursor.unwrap_or(Cursor { requested_on: now, position: Position::slice_start(span.from) });
    Ok(if is_position_of(span, cursor.position) { Ok(cursor) } else { Err(Unfit::ForeignCursor) })
}

/// Whether a comparison of this span may have reached the position: a cursor of another span would leave out a part.
fn is_position_of(span: Span, at: Position) -> bool {
    let past = at.slice - span.from;
    let is_slice = (span.from..span.to).contains(&at.slice) && past == TimeDelta::days(past.num_days());
    is_slice
        && at.workflow >= 0
        && at.after.is_none_or(|after| (at.slice..span.to.min(at.slice + SLICE)).contains(&after))
}

/// Compares from `cursor` on, as much as fits into one answer.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a query.
pub async fn compare_span(pool: &PgPool, span: Span, cursor: Cursor) -> sqlx::Result<Findings> {
    let began = Instant::now();
    let mut findings = Findings::empty_from(span.from);
    let mut at = cursor.position;
    while at.slice < span.to {
        if began.elapsed() > PATIENCE {
            findings.next = Some(Cursor { position: at, ..cursor });
            break;
        }
        let slice = Span { from: at.slice, to: span.to.min(at.slice + SLICE) };
        let page = compare_page(pool, slice, at, findings).await?;
        findings = page.findings;
        at = page.next.unwrap_or_else(|| Position::slice_start(slice.to));
        if page.is_cut {
            findings.next = Some(Cursor { position: at, ..cursor });
            break;
        }
    }
    Ok(findings)
}

/// Compares a page of workflows from a position on; returns where the slice continues, `None` if it is complete.
async fn compare_page(pool: &PgPool, slice: Span, at: Position, mut findings: Findings) -> sqlx::Result<Evaluated> {
    // In one snapshot the page has all rows of a workflow that is deleted meanwhile, or none, and a prune together
    // with its mark.
    let mut tx = db::begin_indexed_read(pool).await?;
    let (runs_pruned_before, pruned_before) = prune_marks::read_marks(&mut tx).await?;
    let slice = match pruned_before.map(|pruned| pruned.min(slice.to)) {
        Some(pruned) if pruned > slice.from => {
            findings.compared_from = findings.compared_from.max(pruned);
            Span { from: pruned, ..slice }
        }
        _ => slice,
    };
    let workflows = read_workflows(&mut tx, at.workflow, slice).await?;
    let ids: Vec<i64> = workflows.iter().map(|workflow| workflow.id).collect();
    let versions = versions::read_during(&mut tx, &ids, slice.from, slice.to).await?;
    let due = off_the_async_threads(move || Due::of_workflows(workflows, versions, slice, at)).await?;
    let ids = Ids::of_ascending(due.workflow_ids());
    let page = Page {
        due,
        decisions: read_decisions(&mut tx, &ids, slice).await?,
        runs: read_runs(&mut tx, &ids, slice).await?,
        freezes: read_freezes(&mut tx, slice.from, DateTime::<Utc>::MAX_UTC).await?,
        runs_pruned_before,
    };
    tx.rollback().await?;
    off_the_async_threads(move || page.evaluate_page(at, findings)).await
}

async fn off_the_async_threads<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> sqlx::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|_| sqlx::Error::WorkerCrashed)
}
