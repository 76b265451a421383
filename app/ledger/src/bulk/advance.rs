//! Step 7 of 7: the job that processes the items of bulk operations, each in a transaction of its own.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

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
/// So long a turn of the job makes passes: one pass a turn would be 50 items of a team a second.
pub const PASS: Duration = Duration::from_secs(30);
/// How many items of one team a pass processes, so that each team has its part also if hundreds have operations.
const ITEMS_A_PASS: u32 = 50;

/// The team after which the next pass of an instance begins.
///
/// It moves before a team is processed. So a pass that is cut, fails or is stopped is continued behind that team, and a team
/// whose items take long delays no other one again and again.
#[derive(Debug, Default)]
pub struct BulkCursor(AtomicI64);

impl BulkCursor {
    fn position(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    fn move_to(&self, team: i64) {
        self.0.store(team, Ordering::Relaxed);
    }
}

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
    /// Whether an operation has more items that may be processed now, or the pass has not come to each team.
    pub has_more: bool,
}

impl Pass {
    /// Returns what it did, in a sentence.
    #[must_use]
    pub fn in_words(&self) -> String {
        format!("{} items of bulk operations processed", self.processed)
    }
}

/// Processes some items of the oldest running operation of each team behind the cursor, until `limit` has passed, and adds what
/// it did to `pass`. A pass that comes to the last team sets the cursor back to the first.
///
/// # Errors
/// Fails if the database fails. The items that were processed remain so, and `pass` has them: runs and edits of them may wait
/// for a notification.
pub async fn advance_operations(
    pool: &PgPool,
    cursor: &BulkCursor,
    limit: Duration,
    default: DefaultRate,
    clock: &Clock,
    pass: &mut Pass,
) -> sqlx::Result<()> {
    let (deadline, last) = (Instant::now() + limit, cursor.position());
    // The teams up to the cursor are those of the next pass.
    pass.has_more |= last > 0;
    let running = list_running(&mut *pool.acquire().await?, last).await?;
    for (team, operation) in running {
        cursor.move_to(team);
        advance_one(pool, operation, deadline, default, clock, pass).await?;
        if Instant::now() >= deadline {
            pass.has_more = true;
            return Ok(());
        }
    }
    cursor.move_to(0);
    Ok(())
}

/// Processes the next items of an operation, at least one.
async fn advance_one(
    pool: &PgPool,
    operation: Uuid,
    deadline: Instant,
    default: DefaultRate,
    clock: &Clock,
    pass: &mut Pass,
) -> sqlx::Result<()> {
    for _ in 0..ITEMS_A_PASS {
        match process_next(pool, operation, default, clock).await? {
            Step::Processed(effect) => pass.add(effect),
            Step::Waits => return Ok(()),
        }
        if Instant::now() >= deadline {
            break;
        }
    }
    pass.has_more = true;
    Ok(())
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

/// Lists the teams after `last` with a running operation, and the oldest of each.
async fn list_running(db: &mut PgConnection, last: i64) -> sqlx::Result<Vec<(i64, Uuid)>> {
    let oldest = sqlx::query!(
        r#"
        -- the oldest running bulk operation of each team behind a cursor: a team has few that run
        SELECT DISTINCT ON (team_id) team_id, id
          FROM bulk_operations
         WHERE state = 'running' AND team_id > $1
         ORDER BY team_id, id
        "#,
        last,
    )
    .fetch_all(db)
    .await?;
    Ok(oldest.into_iter().map(|operation| (operation.team_id, operation.id)).collect())
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
