//! Step 7 of 7: decides whether a run may start while other runs of its workflow have not ended.
//!
//! Decided under the workflow's lock, from the runs themselves and never from a flag. A crash leaves a run that
//! recovery ends or continues; its slot is free when it ends.
//!
//! | | takes a slot | waits |
//! |---|---|---|
//! | live: `schedule`, `manual` | accepted, running; a `schedule` also queued | before all others |
//! | deferred: `catch_up`, `backfill`, `retry` | accepted, running | behind the live ones, one at a time |
//!
//! Under `skip` a fire is skipped if the previous run has started. If that run waits for an executor, the fire waits
//! too: at most one per workflow, the newest. While a workflow is paused, its automatic runs wait and take no slot. In a
//! freeze they take none from what a person requests.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use uuid::Uuid;
use workflows::definition::policies::{Overlap, Policies};
use workflows::reasons::ReasonCode;
use workflows::{State, Workflow};

use crate::admission::load::{self, Automatic, Load, is_live, slot_limit};
use crate::admission::promote::{defer_automatic_runs, promote_queued_runs};
use crate::occurrences;
use crate::runs::{self, RunState, Trigger, accept_run};

/// How many runs may wait under `queue`.
const QUEUE_LENGTH: i64 = 100;

/// Whether, and when, a run may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The run starts at once, because a slot is free.
    Start,
    /// The run starts when a slot is free.
    Queue,
    /// The run does not start, for this reason.
    Skip(ReasonCode),
    /// The run starts when these runs, whose cancellation was requested, have ended.
    Replace(Vec<Uuid>),
}

impl Verdict {
    /// Returns the initial state of the run, or why it does not run.
    ///
    /// # Errors
    /// Returns the reason why it does not run.
    pub fn initial_state(&self) -> Result<RunState, ReasonCode> {
        match self {
            Verdict::Start => Ok(RunState::Accepted),
            Verdict::Queue | Verdict::Replace(_) => Ok(RunState::Queued),
            Verdict::Skip(reason) => Err(*reason),
        }
    }
}

/// Accepts or queues a run, or returns why the policy refuses it. The caller has locked the workflow.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn admit_run(
    tx: &mut PgConnection,
    workflow: &Workflow,
    run: &runs::New,
) -> sqlx::Result<Result<RunState, ReasonCode>> {
    let admitted = decide_admission(tx, workflow, run.trigger, run.now).await?.initial_state();
    if let Ok(state) = admitted {
        accept_run(tx, workflow, state, run).await?;
    }
    Ok(admitted)
}

/// As [`admit_run`], for a deferred run, which is never refused: it waits, however long the queue is.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn admit_deferred(tx: &mut PgConnection, workflow: &Workflow, run: &runs::New) -> sqlx::Result<()> {
    let state = decide_admission(tx, workflow, run.trigger, run.now).await?.initial_state().unwrap_or(RunState::Queued);
    accept_run(tx, workflow, state, run).await
}

/// Decides whether a run may start. The caller has locked the workflow until it has written the run.
///
/// Under `replace` it cancels the previous runs in the same transaction, so the caller must write the new run.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn decide_admission(
    tx: &mut PgConnection,
    workflow: &Workflow,
    trigger: Trigger,
    now: DateTime<Utc>,
) -> sqlx::Result<Verdict> {
    let automatic = read_automatic_for(tx, workflow, trigger, now).await?;
    let mut load = load::read_load(tx, workflow, automatic).await?;
    // A freeze may hold the runs of very many workflows, so they are queued only if this run needs their slot.
    let needs_slot =
        workflow.state == State::Paused || load.evaluate(&workflow.spec.policies, trigger) != Verdict::Start;
    if automatic != Automatic::MayStart && needs_slot && defer_automatic_runs(tx, workflow.id).await? > 0 {
        load = load::read_load(tx, workflow, automatic).await?;
        // The slot is free for this run, not for deferred ones that wait.
        if load.waiting_live() == 0 && load.evaluate(&workflow.spec.policies, trigger) == Verdict::Start {
            return Ok(Verdict::Start);
        }
    }
    if load.needs_promotion(&workflow.spec.policies) {
        // Queued runs start before newer ones.
        promote_queued_runs(tx, workflow, automatic, now).await?;
        load = load::read_load(tx, workflow, automatic).await?;
    }
    match load.evaluate(&workflow.spec.policies, trigger) {
        Verdict::Replace(_) => replace(tx, workflow, automatic, now).await,
        verdict => Ok(verdict),
    }
}

/// Whether the automatic runs of the workflow are held, as far as this concerns the admission of a run.
///
/// What a schedule starts in a freeze is a fire that arrived before its time, at which the freeze has ended: it waits
/// behind the runs that the freeze holds. A backfill does not advance in a freeze.
async fn read_automatic_for(
    tx: &mut PgConnection,
    workflow: &Workflow,
    trigger: Trigger,
    now: DateTime<Utc>,
) -> sqlx::Result<Automatic> {
    match (workflow.state, trigger) {
        (State::Paused, _) => Ok(Automatic::Paused),
        (_, Trigger::Manual | Trigger::Retry) => load::read_automatic(tx, workflow, now).await,
        (_, Trigger::Schedule | Trigger::CatchUp | Trigger::Backfill) => Ok(Automatic::MayStart),
    }
}

/// The outcome for a fire that must wait under `skip`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The fire waits; the runs of these earlier times are cancelled, and their times skipped.
    Replaces(Vec<DateTime<Utc>>),
    /// A newer fire already waits, so this one is skipped.
    NewerWaits,
}

/// Queues the fire of a time in place of the fires that wait, unless one of them is newer.
///
/// The workflow is locked, so none of them can get a slot meanwhile.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn take_waiting_place(
    tx: &mut PgConnection,
    workflow: WorkflowId,
    time: DateTime<Utc>,
    now: DateTime<Utc>,
) -> sqlx::Result<Place> {
    let waiting = lock_waiting_fires(tx, workflow).await?;
    if waiting.iter().any(|one| one.scheduled_time > time) {
        return Ok(Place::NewerWaits);
    }
    let (runs, times): (Vec<_>, Vec<_>) = waiting.into_iter().map(|one| (one.id, one.scheduled_time)).unzip();
    if !runs.is_empty() {
        cancel_waiting(tx, &runs, now).await?;
        occurrences::skip_replaced(tx, &runs, &times, ReasonCode::PredecessorNotStarted, now).await?;
    }
    Ok(Place::Replaces(times))
}

/// As [`take_waiting_place`], for one fire of each of many workflows, which the caller has locked. It waits for no lock:
/// a workflow of which another transaction has locked a waiting run is left out, and nothing is changed for it.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(crate) async fn take_waiting_places(
    tx: &mut PgConnection,
    fires: &[(WorkflowId, DateTime<Utc>)],
    now: DateTime<Utc>,
) -> sqlx::Result<HashMap<i64, Place>> {
    let (mut places, mut replaced, mut times) = (HashMap::new(), Vec::new(), Vec::new());
    if fires.is_empty() {
        return Ok(places);
    }
    let waiting = lock_waiting_of_many(tx, fires).await?;
    for (workflow, time) in fires {
        let id = workflow.0;
        let of_workflow = || waiting.iter().filter(move |one| one.workflow_id == id);
        if of_workflow().any(|one| !one.is_locked) {
            continue;
        }
        let place = if of_workflow().any(|one| one.scheduled_time > *time) {
            Place::NewerWaits
        } else {
            replaced.extend(of_workflow().map(|one| one.id));
            times.extend(of_workflow().map(|one| one.scheduled_time));
            Place::Replaces(of_workflow().map(|one| one.scheduled_time).collect())
        };
        places.insert(id, place);
    }
    if !replaced.is_empty() {
        cancel_waiting(tx, &replaced, now).await?;
        occurrences::skip_replaced(tx, &replaced, &times, ReasonCode::PredecessorNotStarted, now).await?;
    }
    Ok(places)
}

struct WaitingFireOf {
    workflow_id: i64,
    id: Uuid,
    scheduled_time: DateTime<Utc>,
    /// Whether this transaction has locked it.
    is_locked: bool,
}

async fn lock_waiting_of_many(
    tx: &mut PgConnection,
    fires: &[(WorkflowId, DateTime<Utc>)],
) -> sqlx::Result<Vec<WaitingFireOf>> {
    let ids: Vec<_> = fires.iter().map(|(workflow, _)| workflow.0).collect();
    sqlx::query_as!(
        WaitingFireOf,
        r#"
        -- lock the waiting fires of a batch: as those of one workflow, but it waits for no lock
        WITH waiting AS MATERIALIZED (
            SELECT workflow_id, id, scheduled_time
              FROM runs
             WHERE workflow_id = ANY($1) AND state = 'queued' AND trigger = 'schedule' AND scheduled_time IS NOT NULL
               AND run_never_started(attempt, handed_over, cut_off)
        ), locked AS MATERIALIZED (
            SELECT r.id
              FROM runs r
             WHERE r.workflow_id = ANY($1) AND r.state = 'queued' AND r.trigger = 'schedule' AND r.scheduled_time IS NOT NULL
               AND run_never_started(r.attempt, r.handed_over, r.cut_off)
             ORDER BY r.id
               FOR UPDATE SKIP LOCKED
        )
        SELECT w.workflow_id AS "workflow_id!", w.id AS "id!", w.scheduled_time AS "scheduled_time!",
               (SELECT TRUE FROM locked l WHERE l.id = w.id) IS NOT NULL AS "is_locked!"
          FROM waiting w
        "#,
        &ids,
    )
    .fetch_all(tx)
    .await
}

struct WaitingFire {
    id: Uuid,
    scheduled_time: DateTime<Utc>,
}

async fn lock_waiting_fires(tx: &mut PgConnection, workflow: WorkflowId) -> sqlx::Result<Vec<WaitingFire>> {
    sqlx::query_as!(
        WaitingFire,
        r#"
        -- lock the fires of a workflow that wait and have never started
        SELECT id, scheduled_time AS "scheduled_time!"
          FROM runs
         WHERE workflow_id = $1 AND state = 'queued' AND trigger = 'schedule' AND scheduled_time IS NOT NULL
           AND run_never_started(attempt, handed_over, cut_off)
         ORDER BY id
           FOR UPDATE
        "#,
        workflow.0,
    )
    .fetch_all(tx)
    .await
}

async fn cancel_waiting(tx: &mut PgConnection, runs: &[Uuid], now: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- cancel the runs that a newer fire replaces: this transaction has locked them
        WITH cancelled AS (
            DELETE FROM runs_live r WHERE r.id = ANY($1) RETURNING r AS run
        )
        INSERT INTO runs_ended
        SELECT e.* FROM cancelled CROSS JOIN LATERAL ended_run(run, 'cancelled', $2, 'replaced_before_start') AS e
        "#,
        runs,
        now,
    )
    .execute(tx)
    .await
    .map(drop)
}

impl Load {
    /// Decides whether a run may start, after [`Load::needs_promotion`] found no queued run that must start first. Every
    /// caller, of one run or of a batch, uses this rule.
    pub(crate) fn evaluate(self, policies: &Policies, trigger: Trigger) -> Verdict {
        if !is_live(trigger) {
            let first = self.waiting_runs() == 0 && self.has_room_for(policies, trigger);
            return if first { Verdict::Start } else { Verdict::Queue };
        }
        if self.busy_runs() + self.waiting_live() < slot_limit(policies) {
            return Verdict::Start;
        }
        match policies.overlap {
            Overlap::Queue if self.waiting_live() >= QUEUE_LENGTH => Verdict::Skip(ReasonCode::QueueFull),
            Overlap::QueueOne if self.waiting_live() > 0 => Verdict::Skip(ReasonCode::RunAlreadyQueued),
            Overlap::Queue | Overlap::QueueOne => Verdict::Queue,
            Overlap::Replace => Verdict::Replace(Vec::new()),
            Overlap::Skip | Overlap::Concurrent => {
                // A queued manual run takes no slot from the schedule, but further manual runs must not accumulate
                // behind it.
                let waiting_manual = if trigger == Trigger::Manual { self.waiting_manual } else { 0 };
                let taken_by_live = self.live + self.waiting_schedule + waiting_manual >= slot_limit(policies);
                if !taken_by_live || self.may_wait_for_start(policies, trigger) {
                    return Verdict::Queue;
                }
                Verdict::Skip(ReasonCode::PreviousRunNotEnded)
            }
        }
    }

    /// Whether the previous run waits for an executor, so that the fire must not be skipped because of it.
    ///
    /// Under `concurrent` the runs that wait for an executor count as slots, of which there are enough.
    fn may_wait_for_start(self, policies: &Policies, trigger: Trigger) -> bool {
        policies.overlap == Overlap::Skip
            && trigger == Trigger::Schedule
            && (self.started == 0 || self.waiting_unstarted > 0)
    }
}

/// Cancels the live runs that have not started, and requests the others to cancel. Deferred runs continue; the new run
/// waits.
async fn replace(
    tx: &mut PgConnection,
    workflow: &Workflow,
    automatic: Automatic,
    now: DateTime<Utc>,
) -> sqlx::Result<Verdict> {
    let live = [Trigger::Schedule, Trigger::Manual];
    let stopping = workflows::cancel_live_runs(tx, workflow.id, &live, ReasonCode::ReplacedByLaterRun, now).await?;
    if load::read_load(tx, workflow, automatic).await?.busy_runs() == 0 {
        return Ok(Verdict::Start);
    }
    Ok(Verdict::Replace(stopping))
}
