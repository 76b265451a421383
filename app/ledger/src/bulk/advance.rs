//! Step 7 of 7: the job that processes the items of bulk operations, each in a transaction of its own.

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use schedule::{Clock, WorkflowId};
use uuid::Uuid;
use workflows::audit::{self, Edit, Entry};
use workflows::{PausedBy, Saved, State as WorkflowState, Workflow, erase_workflow, lock_for_edit, save_workflow};

use super::operation::{Outcome, Verb};
use super::repeats::{OtherRuns, compare_other_runs};
use crate::admission::queue;
use crate::job_failures;
use crate::manual::{self, ManualOutcome};
use crate::requested_fires::DefaultRate;
use crate::runs::{self, Cancelled};

/// Name of the job in the table `jobs`.
pub const JOB: &str = "bulk";
/// How many items of one team a pass processes. A turn of the job ends after five minutes, and the next one begins with the first
/// team again: so each team has its part also if hundreds have operations.
const ITEMS_A_PASS: u32 = 50;

/// The result of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Items processed.
    pub processed: u64,
    /// Runs created or cancelled, and workflows resumed, whose runs may start.
    pub runs: u64,
    /// Workflows edited.
    pub edits: u64,
    /// Items after which the runs of their workflow that wait were checked, each in a further transaction.
    pub advanced: u64,
    /// Whether an operation has more items that may be processed now.
    pub has_more: bool,
}

impl Pass {
    /// Returns what it did, in a sentence.
    #[must_use]
    pub fn in_words(&self) -> String {
        format!("{} items of bulk operations processed", self.processed)
    }
}

/// Processes some items of the oldest running operation of each team.
///
/// # Errors
/// Fails if the database fails; the items that were processed remain so.
pub async fn advance_operations(pool: &PgPool, default: DefaultRate, clock: &Clock) -> sqlx::Result<Pass> {
    let mut pass = Pass::default();
    for operation in list_running(&mut *pool.acquire().await?).await? {
        let mut items = 0;
        loop {
            match process_next(pool, operation, default, clock).await? {
                Step::Processed(effect) => pass.add(effect),
                Step::Waits => break,
            }
            items += 1;
            if items == ITEMS_A_PASS {
                pass.has_more = true;
                break;
            }
        }
    }
    Ok(pass)
}

impl Pass {
    fn add(&mut self, effect: Effect) {
        self.processed += 1;
        match effect {
            Effect::Nothing => {}
            Effect::Edit => self.edits += 1,
            Effect::Run => self.runs += 1,
            Effect::FreeSlot => {
                self.runs += 1;
                self.advanced += 1;
            }
            Effect::Resume => {
                self.edits += 1;
                self.runs += 1;
                self.advanced += 1;
            }
        }
    }
}

/// What a step did.
enum Step {
    Processed(Effect),
    /// Nothing more can be processed now: all is processed, another instance is at it, or the team has started as many runs as it may.
    Waits,
}

/// What others need to be told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Nothing,
    Edit,
    Run,
    /// A run was cancelled that had a slot and had not started.
    FreeSlot,
    /// A workflow was resumed: runs of it that waited may start.
    Resume,
}

/// What became of an item.
enum Applied {
    Done(Effect, Option<Uuid>),
    Unchanged,
    Refused(&'static str),
    /// The team has started as many runs as it may.
    Exhausted,
}

/// The next item of an operation.
struct Next {
    operation_id: Uuid,
    verb: Verb,
    reason: Option<String>,
    until: Option<DateTime<Utc>>,
    replaces_pause: bool,
    actor: String,
    actor_name: Option<String>,
    traceparent: Option<String>,
    team_id: i64,
    nth: i32,
    workflow_id: i64,
    run_id: Option<Uuid>,
}

async fn process_next(pool: &PgPool, operation: Uuid, default: DefaultRate, clock: &Clock) -> sqlx::Result<Step> {
    let mut tx = db::begin_transaction(pool).await?;
    let Some(next) = lock_next(&mut tx, operation).await? else { return Ok(Step::Waits) };
    let applied = match apply(&mut tx, &next, default, clock).await {
        Err(error) if is_temporary(&error) => {
            tracing::info!(job = JOB, workflow_id = next.workflow_id, %error, "item of a bulk operation waits for the next pass");
            return Ok(Step::Waits);
        }
        Err(error) if job_failures::concerns_one_workflow(&error) => {
            // Its statements were rolled back, so the item is counted in a transaction of its own.
            tx.rollback().await.ok();
            tracing::error!(job = JOB, workflow_id = next.workflow_id, %error, "item of a bulk operation refused");
            return refuse_failed(pool, operation, next.nth, clock.now()).await;
        }
        applied => applied?,
    };
    let (outcome, code, new_run, effect) = match applied {
        Applied::Done(effect, run) => (Outcome::Done, None, run, effect),
        Applied::Unchanged => (Outcome::Unchanged, None, None, Effect::Nothing),
        Applied::Refused(code) => (Outcome::Refused, Some(code), None, Effect::Nothing),
        Applied::Exhausted => return Ok(Step::Waits),
    };
    count_item(&mut tx, operation, next.nth, outcome, code, new_run, clock.now()).await?;
    tx.commit().await?;
    if matches!(effect, Effect::FreeSlot | Effect::Resume) {
        queue::advance_after_commit(pool, WorkflowId(next.workflow_id), clock.now()).await;
    }
    Ok(Step::Processed(effect))
}

/// Whether the same statements may succeed soon: another transaction had locked the rows for too long.
fn is_temporary(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    matches!(code.as_deref(), Some("40001" | "40P01" | "55P03" | "57014"))
}

async fn refuse_failed(pool: &PgPool, operation: Uuid, nth: i32, now: DateTime<Utc>) -> sqlx::Result<Step> {
    let mut tx = db::begin_transaction(pool).await?;
    match lock_next(&mut tx, operation).await? {
        Some(next) if next.nth == nth => {
            count_item(&mut tx, operation, nth, Outcome::Refused, Some("internal"), None, now).await?;
            tx.commit().await?;
            Ok(Step::Processed(Effect::Nothing))
        }
        _ => Ok(Step::Waits),
    }
}

/// Applies the verb to an item, by the rules of a request for it alone; a retry also by those of [`compare_other_runs`].
async fn apply(tx: &mut PgConnection, next: &Next, default: DefaultRate, clock: &Clock) -> sqlx::Result<Applied> {
    let workflow = WorkflowId(next.workflow_id);
    let Some((before, now)) = lock_for_edit(tx, workflow, Some(next.team_id), clock).await? else {
        return Ok(Applied::Refused("not_found"));
    };
    let edit = Edit {
        actor: next.actor.clone(),
        actor_name: next.actor_name.clone(),
        source_address: None,
        now,
        traceparent: next.traceparent.clone(),
    };
    if let Some(applied) = decide_by_state(next, before.state) {
        return Ok(applied);
    }
    match (next.verb, next.run_id) {
        (Verb::Delete, _) => {
            erase_workflow(tx, &before, &edit).await?;
            Ok(Applied::Done(Effect::Edit, None))
        }
        (Verb::Fire, _) => manual::fire_now(tx, &before, None, default, &edit).await.map(of_manual),
        (Verb::Retry, Some(run)) => match compare_other_runs(tx, workflow, run, next.operation_id).await? {
            OtherRuns::Permit => manual::retry_run(tx, &before, run, default, &edit).await.map(of_manual),
            OtherRuns::Succeeded => Ok(Applied::Refused("already_succeeded")),
            OtherRuns::Repeated => Ok(Applied::Refused("already_repeated")),
        },
        (Verb::Cancel, Some(run)) => cancel(tx, next.team_id, workflow, run, &edit).await,
        (Verb::Pause | Verb::Resume | Verb::Archive, _) => {
            save(tx, &before, changed(&before, next), next.verb, &edit).await
        }
        (Verb::Retry | Verb::Cancel, None) => Ok(Applied::Refused("not_found")),
    }
}

/// What becomes of an item because of the state of its workflow; `None`: the state permits the verb.
fn decide_by_state(next: &Next, state: WorkflowState) -> Option<Applied> {
    match (next.verb, state) {
        (Verb::Cancel, _) | (Verb::Delete, WorkflowState::Archived) => None,
        (Verb::Delete, _) => Some(Applied::Refused("not_archived")),
        (Verb::Archive, WorkflowState::Archived) => Some(Applied::Unchanged),
        (_, WorkflowState::Archived) => Some(Applied::Refused("archived")),
        // Its pause has a reason and an end of its own, which the caller of many has not seen.
        (Verb::Pause, WorkflowState::Paused) if !next.replaces_pause => Some(Applied::Unchanged),
        _ => None,
    }
}

fn changed(before: &Workflow, next: &Next) -> Workflow {
    let after = before.clone();
    match next.verb {
        Verb::Pause => Workflow {
            state: WorkflowState::Paused,
            pause_reason: next.reason.clone(),
            paused_by: Some(PausedBy::Client),
            pause_until: next.until,
            ..after
        },
        Verb::Archive => Workflow { state: WorkflowState::Archived, pause_reason: None, pause_until: None, ..after },
        Verb::Resume => before.resumed(),
        Verb::Delete | Verb::Fire | Verb::Retry | Verb::Cancel => after,
    }
}

async fn save(
    tx: &mut PgConnection,
    before: &Workflow,
    after: Workflow,
    verb: Verb,
    edit: &Edit,
) -> sqlx::Result<Applied> {
    Ok(match save_workflow(tx, before, after, verb.as_str(), edit).await? {
        Saved::Unchanged => Applied::Unchanged,
        Saved::Changed | Saved::Enqueued(_) if verb == Verb::Resume => Applied::Done(Effect::Resume, None),
        Saved::Changed | Saved::Enqueued(_) => Applied::Done(Effect::Edit, None),
    })
}

fn of_manual(outcome: ManualOutcome) -> Applied {
    match outcome {
        ManualOutcome::Run(run) => Applied::Done(Effect::Run, Some(run)),
        ManualOutcome::Overlap(_) => Applied::Refused("overlap"),
        ManualOutcome::Live => Applied::Refused("run_live"),
        ManualOutcome::OtherOrigin => Applied::Refused("inputs_other_origin"),
        ManualOutcome::Exhausted { .. } => Applied::Exhausted,
    }
}

async fn cancel(
    tx: &mut PgConnection,
    team: i64,
    workflow: WorkflowId,
    run: Uuid,
    edit: &Edit,
) -> sqlx::Result<Applied> {
    let effect = match runs::cancel_run(tx, run, edit.now).await? {
        Cancelled::TooLate => return Ok(Applied::Refused("run_ended")),
        // Nothing gets a slot from a run that had none, and a check would read all runs of the workflow that wait: for each of
        // 50,000 items, all others. What waited behind it is started by the job `queue`.
        Cancelled::Requested | Cancelled::LeftQueue => Effect::Run,
        Cancelled::FreedSlot => Effect::FreeSlot,
    };
    let subject = format!("run:{run} of workflow:{workflow}");
    let entry = Entry { verb: "cancel", subject, team_id: Some(team), before: None, after: None };
    audit::record_entry(tx, edit, entry).await?;
    Ok(Applied::Done(effect, None))
}

async fn list_running(db: &mut PgConnection) -> sqlx::Result<Vec<Uuid>> {
    sqlx::query_scalar!(
        r#"
        -- the oldest running bulk operation of each team: a team has few that run
        SELECT DISTINCT ON (team_id) id FROM bulk_operations WHERE state = 'running' ORDER BY team_id, id
        "#
    )
    .fetch_all(db)
    .await
}

/// Locks an operation, unless another instance processes it, and reads its next item.
async fn lock_next(tx: &mut PgConnection, operation: Uuid) -> sqlx::Result<Option<Next>> {
    sqlx::query_as!(
        Next,
        r#"
        -- the next item of a bulk operation: none if it has ended, or if another instance has locked it
        WITH operation AS MATERIALIZED (
            SELECT * FROM bulk_operations WHERE id = $1 AND state = 'running' FOR UPDATE SKIP LOCKED
        )
        SELECT o.id AS operation_id, o.verb AS "verb: Verb", o.reason, o.until, o.replaces_pause, o.actor, o.actor_name,
               o.traceparent, o.team_id, i.nth, i.workflow_id, i.run_id
          FROM operation o
          JOIN bulk_items i ON i.operation_id = o.id AND i.nth = o.processed + 1
        "#,
        operation,
    )
    .fetch_optional(tx)
    .await
}

/// Counts an item, and ends the operation with its last one.
async fn count_item(
    tx: &mut PgConnection,
    operation: Uuid,
    nth: i32,
    outcome: Outcome,
    code: Option<&str>,
    new_run: Option<Uuid>,
    now: DateTime<Utc>,
) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- count an item of a bulk operation, which this transaction has locked
        WITH item AS (
            UPDATE bulk_items SET outcome = $3, code = $4, new_run_id = $5 WHERE operation_id = $1 AND nth = $2
        )
        UPDATE bulk_operations
           SET processed = $2, refused = refused + ($3 = 'refused')::integer,
               state = CASE WHEN total = $2 THEN 'finished' ELSE state END,
               finished_on = CASE WHEN total = $2 THEN $6::timestamptz END
         WHERE id = $1
        "#,
        operation,
        nth,
        outcome as Outcome,
        code,
        new_run,
        now,
    )
    .execute(tx)
    .await
    .map(drop)
}
