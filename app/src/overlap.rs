//! Step 7 of 7: whether a run may begin while others of its workflow have not ended.
//!
//! Decided under the workflow's lock, from the runs themselves and never from a flag: what a crash
//! leaves behind is a run that recovery ends or takes up again, and its slot is free when it ends.
//!
//! | | takes a slot | waits |
//! |---|---|---|
//! | live: `schedule`, `manual` | accepted, running; a `schedule` also queued | before all others |
//! | made up for: `catch_up`, `backfill`, `retry` | accepted, running | behind the live ones, one at a time |

use chrono::{DateTime, Utc};
use schedule::WorkflowId;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::policies::Overlap;
use crate::queue;
use crate::runs::{RunState, Trigger};
use crate::workflows::Workflow;

/// Runs that wait at most, under `queue`.
const QUEUE_LENGTH: i64 = 100;

/// Whether, and how, a run may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// At once: a slot is free.
    Start,
    /// Once a slot is free.
    Queue,
    /// Not at all, for this reason.
    Skip(&'static str),
    /// Once these, which were asked to end, have ended.
    Replace(Vec<Uuid>),
}

impl Verdict {
    /// The state in which the run begins, or why it does not.
    ///
    /// # Errors
    /// The reason why it does not run.
    pub fn state(&self) -> Result<RunState, &'static str> {
        match self {
            Verdict::Start => Ok(RunState::Accepted),
            Verdict::Queue | Verdict::Replace(_) => Ok(RunState::Queued),
            Verdict::Skip(reason) => Err(reason),
        }
    }
}

/// Decides whether a run may begin; the workflow is locked, and stays so until the run is written.
///
/// Under `replace` it asks the runs before it to end, in the same transaction: who calls this
/// means to write the run.
///
/// # Errors
/// The database's.
pub async fn verdict(
    tx: &mut PgConnection,
    workflow: &Workflow,
    trigger: Trigger,
    now: DateTime<Utc>,
) -> sqlx::Result<Verdict> {
    let mut load = load(tx, workflow.id).await?;
    if load.waiting() > 0 && load.has_room(workflow) {
        // Who came first starts first.
        queue::promote(tx, workflow, now).await?;
        load = self::load(tx, workflow.id).await?;
    }
    match load.judge(workflow, trigger) {
        Verdict::Replace(_) => replace(tx, workflow.id, now).await,
        verdict => Ok(verdict),
    }
}

/// How many runs of a workflow have not ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Accepted or running, live.
    live: i64,
    /// Accepted or running, made up for.
    made_up: i64,
    /// Queued, of trigger `schedule`.
    waiting_schedule: i64,
    /// Queued by hand.
    waiting_manual: i64,
    /// Queued, made up for.
    waiting_made_up: i64,
}

impl Load {
    fn waiting_live(self) -> i64 {
        self.waiting_schedule + self.waiting_manual
    }

    /// All that wait.
    pub(crate) fn waiting(self) -> i64 {
        self.waiting_live() + self.waiting_made_up
    }

    fn busy(self) -> i64 {
        self.live + self.made_up
    }

    fn has_room(self, workflow: &Workflow) -> bool {
        self.busy() < slots(workflow)
    }

    /// Whether a run of this trigger that waits may start.
    pub(crate) fn has_room_for(self, workflow: &Workflow, trigger: Trigger) -> bool {
        // Beside each other is what `concurrent` asks for, and how many a backfill itself says.
        let beside = workflow.spec.policies.overlap == Overlap::Concurrent && trigger == Trigger::Backfill;
        self.has_room(workflow) && (is_live(trigger) || beside || self.made_up == 0)
    }

    fn judge(self, workflow: &Workflow, trigger: Trigger) -> Verdict {
        if !is_live(trigger) {
            let first = self.waiting() == 0 && self.has_room_for(workflow, trigger);
            return if first { Verdict::Start } else { Verdict::Queue };
        }
        if self.busy() + self.waiting_live() < slots(workflow) {
            return Verdict::Start;
        }
        match workflow.spec.policies.overlap {
            Overlap::Queue if self.waiting_live() >= QUEUE_LENGTH => Verdict::Skip("the queue is full"),
            Overlap::QueueOne if self.waiting_live() > 0 => Verdict::Skip("a run waits already"),
            Overlap::Queue | Overlap::QueueOne => Verdict::Queue,
            Overlap::Replace => Verdict::Replace(Vec::new()),
            Overlap::Skip | Overlap::Concurrent => {
                // A queued run by hand takes no slot from the schedule, but another by hand shall not pile up on it.
                let by_hand = if trigger == Trigger::Manual { self.waiting_manual } else { 0 };
                let taken_by_live = self.live + self.waiting_schedule + by_hand >= slots(workflow);
                if taken_by_live { Verdict::Skip("the run before it has not ended") } else { Verdict::Queue }
            }
        }
    }
}

/// Whether a run is of the schedule's own time, or of a person who waits for it.
fn is_live(trigger: Trigger) -> bool {
    match trigger {
        Trigger::Schedule | Trigger::Manual => true,
        Trigger::CatchUp | Trigger::Backfill | Trigger::Retry => false,
    }
}

fn slots(workflow: &Workflow) -> i64 {
    match workflow.spec.policies.overlap {
        Overlap::Concurrent => workflow.spec.policies.max_concurrent.into(),
        Overlap::Skip | Overlap::Queue | Overlap::QueueOne | Overlap::Replace => 1,
    }
}

/// Counts what has not ended.
pub(crate) async fn load(tx: &mut PgConnection, workflow: WorkflowId) -> sqlx::Result<Load> {
    sqlx::query_as!(
        Load,
        r#"
        -- load of a workflow: a run whose instance is dead counts until recovery has ended it or lets it go on
        SELECT count(*) FILTER (WHERE busy AND live) AS "live!",
               count(*) FILTER (WHERE busy AND NOT live) AS "made_up!",
               count(*) FILTER (WHERE state = 'queued' AND trigger = 'schedule') AS "waiting_schedule!",
               count(*) FILTER (WHERE state = 'queued' AND trigger = 'manual') AS "waiting_manual!",
               count(*) FILTER (WHERE state = 'queued' AND NOT live) AS "waiting_made_up!"
          FROM (SELECT state, trigger, trigger IN ('schedule', 'manual') AS live,
                       state IN ('accepted', 'running') AS busy
                  FROM runs
                 WHERE workflow_id = $1 AND state IN ('accepted', 'queued', 'running')) r
        "#,
        workflow.0,
    )
    .fetch_one(tx)
    .await
}

/// Ends what has not started, and asks what runs to end; what waits behind the live ones is left to wait.
async fn replace(tx: &mut PgConnection, workflow: WorkflowId, now: DateTime<Utc>) -> sqlx::Result<Verdict> {
    let ended = sqlx::query!(
        r#"
        -- replace the runs before: one that an executor claims at this moment is asked like any that runs
        UPDATE runs
           SET cancel_requested_on = COALESCE(cancel_requested_on, $2),
               state = CASE WHEN state = 'running' THEN state ELSE 'cancelled' END,
               finished_on = CASE WHEN state = 'running' THEN NULL ELSE $2 END,
               error = CASE WHEN state = 'running' THEN error ELSE 'replaced by a later run' END
         WHERE workflow_id = $1
           AND (state IN ('accepted', 'running') OR state = 'queued' AND trigger IN ('schedule', 'manual'))
        RETURNING id, state = 'running' AS "runs!"
        "#,
        workflow.0,
        now,
    )
    .fetch_all(&mut *tx)
    .await?;
    if load(tx, workflow).await?.busy() == 0 {
        return Ok(Verdict::Start);
    }
    Ok(Verdict::Replace(ended.into_iter().filter(|run| run.runs).map(|run| run.id).collect()))
}
