//! Step 7 of 7: the times that a backfill selects, in its order, one stretch at a time.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use schedule::delivery::GRACE;
use schedule::{Revision, WorkflowId};
use uuid::Uuid;
use workflows::State;
use workflows::id::first_run_id_of;

use super::{BackfillRequest, Only, Order, Timing};
use crate::due_times::{self, DueTime, DueTimes};
use crate::occurrences::Decision;
use crate::prune_marks;
use crate::runs::RunState;
use crate::versions::{self, Version};

/// The span that one statement evaluates, newest first; a cron of every minute has 1,440 due times in it.
const STRETCH: TimeDelta = TimeDelta::days(1);
/// How many due times one statement evaluates, oldest first.
const TIMES: usize = 1_000;

/// Where the due times of a span come from.
pub(super) enum Timetable {
    /// Each schedule version over its own span.
    Then,
    /// The cron and timezone of one version over any span; `None`: it has no cron.
    Now(Option<Box<Version>>),
}

impl Timetable {
    /// Loads the schedule version with this revision; `None` = the versions of the span itself.
    pub(super) async fn load_version(
        db: &mut PgConnection,
        id: WorkflowId,
        revision: Option<i64>,
    ) -> sqlx::Result<Self> {
        let Some(revision) = revision else { return Ok(Self::Then) };
        let version = versions::find_by_revision(db, id, Revision(revision)).await?;
        // The request names its span, so neither a pause nor the schedule's window restricts it.
        let everywhere = |version: Version| Version {
            valid_from: DateTime::UNIX_EPOCH,
            ended_on: None,
            ended_by: None,
            state: State::Active,
            timing: workflows::definition::spec::Timing { starts_at: None, ends_at: None, ..version.timing },
            ..version
        };
        Ok(Self::Now(version.map(everywhere).map(Box::new)))
    }

    async fn between(
        &self,
        db: &mut PgConnection,
        id: WorkflowId,
        after: DateTime<Utc>,
        until: DateTime<Utc>,
        limit: usize,
    ) -> sqlx::Result<DueTimes> {
        match self {
            Self::Then => due_times::read_due_times(db, id, after, until, limit).await,
            Self::Now(version) => {
                let version = version.as_deref().map(std::slice::from_ref).unwrap_or_default();
                Ok(due_times::list_due_times(version, after, until, limit))
            }
        }
    }
}

/// A selected time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selected {
    /// The time, and the schedule version that made it due.
    pub(super) due: DueTime,
    /// The row of the time in the ledger; `None` if the time is to be recorded again.
    pub(super) occurrence: Option<Uuid>,
}

/// One stretch of the span.
pub(super) struct Stretch {
    /// In the order of the backfill.
    pub(super) times: Vec<Selected>,
    /// The last time that was evaluated.
    pub(super) through: DateTime<Utc>,
    /// Whether the span ends here.
    pub(super) is_last: bool,
}

/// Returns all selected times, at most `limit`.
pub(super) async fn list_times(
    db: &mut PgConnection,
    workflow: WorkflowId,
    request: &BackfillRequest,
    timetable: &Timetable,
    now: DateTime<Utc>,
    limit: usize,
) -> sqlx::Result<Vec<DateTime<Utc>>> {
    let (mut times, mut cursor) = (Vec::new(), None);
    loop {
        let stretch = read_stretch(db, workflow, request, timetable, now, cursor).await?;
        times.extend(stretch.times.iter().map(|selected| selected.due.time));
        if stretch.is_last || times.len() >= limit {
            times.truncate(limit);
            return Ok(times);
        }
        cursor = Some(stretch.through);
    }
}

/// Returns the stretch after the cursor, or the first one. `requested_on` is when the backfill was requested.
///
/// Times less than 300 s old at that moment are left to the live schedule.
pub(super) async fn read_stretch(
    db: &mut PgConnection,
    workflow: WorkflowId,
    request: &BackfillRequest,
    timetable: &Timetable,
    requested_on: DateTime<Utc>,
    cursor: Option<DateTime<Utc>>,
) -> sqlx::Result<Stretch> {
    let just_before = |time: DateTime<Utc>| time - TimeDelta::microseconds(1);
    let (first, last) = (just_before(request.start), just_before(request.end).min(requested_on - GRACE));
    let (after, until, limit) = match request.order {
        Order::OldestFirst => (cursor.unwrap_or(first), last, TIMES),
        Order::NewestFirst => {
            let until = cursor.map_or(last, just_before).min(last);
            (first.max(until - STRETCH), until, usize::MAX)
        }
    };
    if after >= until {
        return Ok(Stretch { times: Vec::new(), through: until, is_last: true });
    }
    let due_times = timetable.between(db, workflow, after, until, limit).await?;
    let rows = rows(db, workflow, after, due_times.through.min(until)).await?;
    // Read after the rows, because a prune raises its mark before it removes a row.
    let pruned_before = prune_marks::read_occurrences_mark(db).await?;
    let found = due_times.times.len();
    let select = |due: DueTime| select_time(request, due, rows.get(&due.time), pruned_before);
    let mut times: Vec<Selected> = due_times.times.into_iter().filter_map(select).collect();
    Ok(match request.order {
        // If fewer than the limit were found, no due time follows, or those that follow cannot be computed.
        Order::OldestFirst => Stretch { times, through: due_times.through, is_last: found < limit },
        Order::NewestFirst => {
            times.reverse();
            // The next stretch ends just before the start of this one, which is exclusive.
            Stretch { times, through: after + TimeDelta::microseconds(1), is_last: after <= first }
        }
    })
}

fn select_time(
    request: &BackfillRequest,
    due: DueTime,
    row: Option<&Row>,
    pruned_before: Option<DateTime<Utc>>,
) -> Option<Selected> {
    let is_selected = match (request.only, row) {
        (Only::All, _) => true,
        // A row that was pruned may have said that the time ran.
        (Only::Missing, None) => pruned_before.is_none_or(|pruned| due.time >= pruned),
        (Only::Missing, Some(row)) => match row.decision {
            Decision::Missed => true,
            Decision::SkippedPaused => request.timing == Timing::Now,
            _ => false,
        },
        (Only::Failed, Some(row)) => {
            matches!(row.last_state, Some(RunState::Failed | RunState::TimedOut | RunState::Abandoned))
        }
        (Only::Failed, None) => false,
    };
    // A time that never ran is recorded again, as backfilled.
    let ran = |row: &&Row| !matches!(row.decision, Decision::Missed | Decision::SkippedPaused);
    is_selected.then(|| Selected { due, occurrence: row.filter(ran).map(|row| row.id) })
}

struct Row {
    id: Uuid,
    decision: Decision,
    last_state: Option<RunState>,
}

async fn rows(
    db: &mut PgConnection,
    workflow: WorkflowId,
    after: DateTime<Utc>,
    until: DateTime<Utc>,
) -> sqlx::Result<HashMap<DateTime<Utc>, Row>> {
    let rows = sqlx::query!(
        r#"
        -- the ledger of a stretch, with how each time's last run ended
        SELECT o.scheduled_time, o.id, o.decision AS "decision: Decision",
               (SELECT r.state FROM runs r
                 WHERE r.workflow_id = o.workflow_id AND r.scheduled_time = o.scheduled_time AND r.occurrence_id = o.id
                       -- no run is made before its time, so no earlier day is read
                   AND r.id >= $4
                 ORDER BY r.id DESC
                 LIMIT 1) AS "last_state: RunState"
          FROM occurrences o
         WHERE o.workflow_id = $1 AND o.scheduled_time > $2 AND o.scheduled_time <= $3
        "#,
        workflow.0,
        after,
        until,
        first_run_id_of(after),
    )
    .fetch_all(db)
    .await?;
    let row = |id, decision, last_state| Row { id, decision, last_state };
    Ok(rows.into_iter().map(|found| (found.scheduled_time, row(found.id, found.decision, found.last_state))).collect())
}
