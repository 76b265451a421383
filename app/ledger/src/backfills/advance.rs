//! Step 7 of 7: the job that advances backfills, in bounded passes.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use schedule::WorkflowId;
use uuid::Uuid;
use workflows::{Workflow, lock_workflow};

use super::select::{self, Selected, Timetable};
use super::{Backfill, State, table};
use crate::admission::verdict;
use crate::freezes::read_freezes;
use crate::job_failures;
use crate::occurrences::{Decision, Entry, Recorded, find_occurrence, record_occurrence};
use crate::requested_fires::{DefaultRate, StartPermit, TeamRow, take_requested_fire, try_lock_team};
use crate::runs::{self, Trigger};

/// Name of the job in the table `jobs`.
pub const JOB: &str = "backfills";
/// After this time a pass ends, and the next one continues: a turn of a job must end within its limit.
pub const PASS: Duration = Duration::from_secs(120);
/// How many stretches of one backfill a pass evaluates, so that a span with few selected times delays no other
/// backfill.
const STRETCHES: usize = 50;

/// The result of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Runs created.
    pub started: u64,
    /// Backfills that ended.
    pub finished: u64,
    /// Whether a backfill has more times to evaluate, and room for a run; or the pass was cut.
    pub has_more: bool,
    /// Backfills whose statements failed.
    pub failed: u64,
}

impl Pass {
    /// Returns what it did, in a sentence.
    #[must_use]
    pub fn in_words(&self) -> String {
        format!("{} runs of backfills created, {} backfills ended", self.started, self.finished)
    }
}

/// The backfill after which the next pass of an instance begins. It moves before a backfill is advanced, so a pass that is
/// cut, fails or is stopped is continued behind that backfill.
#[derive(Debug, Default)]
pub struct BackfillCursor(Mutex<Uuid>);

impl BackfillCursor {
    fn position(&self) -> Uuid {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn move_to(&self, backfill: Uuid) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = backfill;
    }
}

/// Advances the running backfills behind the cursor, the oldest first, until `limit` has passed. A failure is logged and
/// counted. A pass that comes to the newest sets the cursor back to the oldest.
///
/// A backfill whose team has started as many runs as it may waits for a later turn.
///
/// # Errors
/// Fails if the database fails; the changes of other backfills remain committed.
pub async fn advance_backfills(
    pool: &PgPool,
    cursor: &BackfillCursor,
    limit: Duration,
    default: DefaultRate,
    now: DateTime<Utc>,
) -> sqlx::Result<Pass> {
    let (began, mut done, last) = (Instant::now(), Pass::default(), cursor.position());
    let mut running = table::list_running(&mut *pool.acquire().await?).await?;
    running.retain(|(id, _)| *id > last);
    for (id, workflow) in running {
        cursor.move_to(id);
        match step_one(pool, id, WorkflowId(workflow), default, now).await {
            Ok(step) => {
                done.started += step.started;
                done.finished += step.finished;
                done.has_more |= step.has_more;
            }
            Err(error) => {
                job_failures::skip_failed(JOB, workflow, error)?;
                done.failed += 1;
            }
        }
        if began.elapsed() >= limit {
            return Ok(Pass { has_more: true, ..done });
        }
    }
    cursor.move_to(Uuid::nil());
    Ok(done)
}

/// Advances one backfill after a run of it has ended, and returns how many runs it has created.
///
/// If the call is lost, for example with its instance, the job advances the backfill.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn refill_backfill(
    pool: &PgPool,
    id: Uuid,
    workflow: WorkflowId,
    default: DefaultRate,
    now: DateTime<Utc>,
) -> sqlx::Result<u64> {
    Ok(step_one(pool, id, workflow, default, now).await?.started)
}

async fn step_one(
    pool: &PgPool,
    id: Uuid,
    workflow: WorkflowId,
    default: DefaultRate,
    now: DateTime<Utc>,
) -> sqlx::Result<Pass> {
    let mut tx = db::begin_transaction(pool).await?;
    let step = step(&mut tx, id, workflow, default, now).await?;
    tx.commit().await?;
    Ok(step)
}

/// Advances one backfill. Locks the workflow first, then the backfill; later statements read them. While the team is
/// frozen it does not advance.
async fn step(
    tx: &mut PgConnection,
    id: Uuid,
    workflow: WorkflowId,
    default: DefaultRate,
    now: DateTime<Utc>,
) -> sqlx::Result<Pass> {
    let Some(workflow) = lock_workflow(tx, workflow, None, now).await? else { return Ok(Pass::default()) };
    let Some(backfill) = table::find_running(tx, id).await? else { return Ok(Pass::default()) };
    if workflow.state == workflows::State::Archived {
        table::enter_state(tx, id, State::Cancelled, now).await?;
        return Ok(Pass { finished: 1, ..Pass::default() });
    }
    if read_freezes(tx, now, now).await?.reason_over(workflow.team_id, now, now).is_some() {
        return Ok(Pass::default());
    }
    let mut room = usize::try_from(i64::from(backfill.request.max_concurrent) - backfill.live).unwrap_or_default();
    let (mut started, mut cursor, mut is_last, mut is_limited) = (0, backfill.cursor, false, false);
    let timetable = Timetable::load_version(tx, workflow.id, backfill.timing_revision).await?;
    for _ in 0..STRETCHES {
        if room == 0 || is_last || is_limited {
            break;
        }
        let stretch =
            select::read_stretch(tx, workflow.id, &backfill.request, &timetable, backfill.created_on, cursor).await?;
        let wanted = &stretch.times[..room.min(stretch.times.len())];
        let taken = start_permitted(tx, &workflow, &backfill, wanted, default, now).await?;
        started += taken;
        room -= taken;
        is_limited = taken < wanted.len();
        let all = taken == stretch.times.len();
        let last = wanted[..taken].last().map(|last| last.due.time);
        cursor = if all { Some(stretch.through) } else { last.or(cursor) };
        is_last = all && stretch.is_last;
    }
    table::advance_backfill(tx, id, cursor, started, now).await?;
    let is_over = is_last && started == 0 && backfill.live == 0;
    if is_over {
        table::enter_state(tx, id, State::Finished, now).await?;
    }
    Ok(Pass {
        started: started as u64,
        finished: is_over.into(),
        has_more: room > 0 && !is_last && !is_limited,
        failed: 0,
    })
}

/// Creates the runs of these times, up to the limit of the team; returns how many. If another caller of the team is
/// being counted, these are 0.
async fn start_permitted(
    tx: &mut PgConnection,
    workflow: &Workflow,
    backfill: &Backfill,
    wanted: &[Selected],
    default: DefaultRate,
    now: DateTime<Utc>,
) -> sqlx::Result<usize> {
    if wanted.is_empty() || try_lock_team(tx, workflow.team_id, default).await? == TeamRow::Busy {
        return Ok(0);
    }
    for (nth, selected) in wanted.iter().enumerate() {
        if take_requested_fire(tx, workflow.team_id, default, now).await? != StartPermit::Granted {
            return Ok(nth);
        }
        start(tx, workflow, backfill, selected, now).await?;
    }
    Ok(wanted.len())
}

/// Creates the run of one time. A missed time becomes backfilled.
async fn start(
    tx: &mut PgConnection,
    workflow: &Workflow,
    backfill: &Backfill,
    selected: &Selected,
    now: DateTime<Utc>,
) -> sqlx::Result<()> {
    let id = workflows::id::make_id(now);
    let occurrence = match selected.occurrence {
        Some(occurrence) => Some(occurrence),
        None => record(tx, workflow, selected, id, now).await?,
    };
    let run = runs::New {
        occurrence_id: occurrence,
        scheduled_time: Some(selected.due.time),
        backfill_id: Some(backfill.id),
        ..runs::New::unscheduled(id, Trigger::Backfill, now)
    };
    verdict::admit_deferred(tx, workflow, &run).await
}

async fn record(
    tx: &mut PgConnection,
    workflow: &Workflow,
    selected: &Selected,
    run: Uuid,
    now: DateTime<Utc>,
) -> sqlx::Result<Option<Uuid>> {
    let entry = Entry {
        workflow_id: workflow.id,
        time: selected.due.time,
        fire: None,
        decision: Decision::Backfilled,
        reason: None,
        revision: selected.due.revision,
        run_id: Some(run),
        now,
    };
    match record_occurrence(tx, &entry).await? {
        Recorded::Ours(id) => Ok(Some(id)),
        // Cannot happen under the workflow's lock; if it does, the run names the existing row.
        Recorded::Theirs => Ok(find_occurrence(tx, workflow.id, selected.due.time).await?.map(|row| row.id)),
    }
}
