//! Step 7 of 7: runs that wait for a slot: how they get one or are abandoned.
//!
//! The instance that ends a run promotes the next one. Because that instance may fail, the job checks all queued runs.
//! The only state is the runs themselves, and how far a pass has come that was cut.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use schedule::WorkflowId;
use uuid::Uuid;
use workflows::reasons::ReasonCode;
use workflows::{State, Workflow, lock_workflow};

use crate::admission::load::{self, Automatic};
use crate::admission::promote::{defer_automatic_runs, promote_queued_runs};
use crate::job_failures;
use crate::runs::abandon_runs;

/// Name of the job in the table `jobs`.
pub const JOB: &str = "queue";
/// After this time a pass ends, and the next one continues: a turn of a job must end within its limit.
pub const PASS: Duration = Duration::from_secs(120);
/// How many workflows one statement of a pass reads.
const BATCH: i64 = 500;

/// The workflow after which the next pass of an instance begins.
///
/// It moves before a workflow is processed. So a pass that is cut, fails or is stopped is continued behind that workflow,
/// and a workflow that takes too long delays no other one again and again.
#[derive(Debug, Default)]
pub struct QueueCursor(AtomicI64);

impl QueueCursor {
    fn position(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    fn move_to(&self, workflow: i64) {
        self.0.store(workflow, Ordering::Relaxed);
    }
}

/// The result of a pass, or of a check of one workflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Runs that got their slot.
    pub promoted: u64,
    /// Runs that had waited too long.
    pub abandoned: u64,
    /// Workflows whose statements failed.
    pub failed: u64,
    /// Runs of archived workflows that had not started.
    pub cancelled: u64,
    /// Accepted runs that wait for the end of a pause or a freeze.
    pub deferred: u64,
    /// Whether the pass was cut before it had checked all workflows.
    pub may_be_more: bool,
}

impl Pass {
    /// Returns how many runs it changed.
    #[must_use]
    pub fn changed_runs(&self) -> u64 {
        self.promoted + self.abandoned + self.cancelled + self.deferred
    }

    /// Adds the outcome of one workflow. A failure of this workflow is logged and counted.
    fn add(&mut self, workflow: i64, outcome: sqlx::Result<Self>) -> sqlx::Result<()> {
        match outcome {
            Ok(one) => {
                self.promoted += one.promoted;
                self.abandoned += one.abandoned;
                self.cancelled += one.cancelled;
                self.deferred += one.deferred;
            }
            Err(error) => {
                job_failures::skip_failed(JOB, workflow, error)?;
                self.failed += 1;
            }
        }
        Ok(())
    }

    /// Returns what it did, in a sentence.
    #[must_use]
    pub fn in_words(&self) -> String {
        let Self { promoted, abandoned, cancelled, deferred, failed: _, may_be_more: _ } = self;
        format!(
            "waiting runs: {promoted} may start, {abandoned} abandoned, {cancelled} cancelled with their workflow, \
             {deferred} wait for the end of a pause or a freeze"
        )
    }
}

/// Checks every workflow that has a queued run which may start or has waited too long, or an accepted run that a pause
/// holds, or a freeze if a run that a person requested needs its slot.
///
/// A workflow that fails is logged and counted, and the pass continues.
///
/// # Errors
/// Fails if the database fails; earlier transactions remain committed.
pub async fn advance_all(pool: &PgPool, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    advance_from(pool, &QueueCursor::default(), PASS, now).await
}

/// As [`advance_all`], from the cursor to the last workflow, or until `limit` has passed. A pass that comes to the last one
/// sets the cursor back to the first.
///
/// # Errors
/// Fails if the database fails; earlier transactions remain committed, and the next pass continues behind the workflow.
pub async fn advance_from(
    pool: &PgPool,
    cursor: &QueueCursor,
    limit: Duration,
    now: DateTime<Utc>,
) -> sqlx::Result<Pass> {
    let (began, mut done) = (Instant::now(), Pass::default());
    loop {
        let workflows = workflows_with_live_runs(&mut *pool.acquire().await?, cursor.position(), now).await?;
        let Some(end) = workflows.last() else {
            cursor.move_to(0);
            return Ok(done);
        };
        for workflow in workflows.iter().filter(|workflow| workflow.may_advance) {
            cursor.move_to(workflow.id);
            done.add(workflow.id, advance_workflow(pool, WorkflowId(workflow.id), now).await)?;
            if began.elapsed() >= limit {
                return Ok(Pass { may_be_more: true, ..done });
            }
        }
        cursor.move_to(end.id);
    }
}

/// Whether a run of a workflow waits for a slot.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn has_queued_run(db: &mut PgConnection, workflow: WorkflowId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"
        -- whether a run waits for a slot
        SELECT EXISTS (SELECT FROM runs WHERE workflow_id = $1 AND state = 'queued') AS "exists!"
        "#,
        workflow.0,
    )
    .fetch_one(db)
    .await
}

/// Returns those of these workflows of which a run waits for a slot.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_queued_workflows(db: &mut PgConnection, workflows: &[i64]) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        r#"
        -- workflows of which a run waits for a slot: a subquery of one row, because a join could read all live runs
        SELECT w.id AS "id!"
          FROM unnest($1::bigint[]) AS w (id)
         WHERE (SELECT TRUE FROM runs r WHERE r.workflow_id = w.id AND r.state = 'queued' LIMIT 1) IS NOT NULL
        "#,
        workflows,
    )
    .fetch_all(db)
    .await
}

/// Gives the free slots of one workflow to its queued runs, after a run of it has ended.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn advance_workflow(pool: &PgPool, workflow: WorkflowId, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let mut tx = db::begin_transaction(pool).await?;
    let done = match lock_workflow(&mut tx, workflow, None, now).await? {
        Some(workflow) => advance_locked(&mut tx, &workflow, now).await?,
        None => Pass::default(),
    };
    tx.commit().await?;
    Ok(done)
}

/// Gives the slots of a workflow to its queued runs after the transaction that made this possible has committed: it cancelled
/// a run that had not started, or resumed the workflow.
///
/// A failure is only logged: what has committed stays, and the job `queue` gives the slots at its next turn.
pub async fn advance_after_commit(pool: &PgPool, workflow: WorkflowId, now: DateTime<Utc>) {
    if let Err(error) = advance_workflow(pool, workflow, now).await {
        tracing::warn!(
            workflow_id = workflow.0, %error,
            "next queued run not started; the job `queue` starts it at its next turn"
        );
    }
}

async fn advance_locked(tx: &mut PgConnection, workflow: &Workflow, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    if workflow.state == State::Archived {
        return cancel_unstarted(tx, workflow, now).await;
    }
    let automatic = load::read_automatic(tx, workflow, now).await?;
    let deferred = match automatic {
        Automatic::Paused | Automatic::Frozen => defer_held(tx, workflow).await?,
        Automatic::MayStart => 0,
    };
    let abandoned = expire(tx, workflow, automatic, now).await?;
    let promoted = promote_queued_runs(tx, workflow, automatic, now).await?;
    Ok(Pass { promoted, abandoned, deferred, ..Pass::default() })
}

/// Queues the accepted automatic runs that a pause holds; those that a freeze holds only if a run waits that a person
/// requested, because a freeze may hold those of very many workflows, and a backfill does not advance in it.
async fn defer_held(tx: &mut PgConnection, workflow: &Workflow) -> sqlx::Result<u64> {
    let is_needed = workflow.state == State::Paused || has_requested_run(tx, workflow.id).await?;
    if is_needed { defer_automatic_runs(tx, workflow.id).await } else { Ok(0) }
}

async fn has_requested_run(tx: &mut PgConnection, workflow: WorkflowId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"
        -- whether a run waits that a person requested
        SELECT EXISTS (SELECT FROM runs
                        WHERE workflow_id = $1 AND state = 'queued' AND trigger IN ('manual', 'retry')) AS "exists!"
        "#,
        workflow.0,
    )
    .fetch_one(tx)
    .await
}

/// Cancels the queued runs of an archived workflow, for example after an older version of the app archived it.
async fn cancel_unstarted(tx: &mut PgConnection, workflow: &Workflow, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let cancelled = sqlx::query!(
        r#"
        -- cancel unstarted runs of an archived workflow
        WITH cancelled AS (
            DELETE FROM runs_live r WHERE r.workflow_id = $1 AND r.state IN ('accepted', 'queued') RETURNING r AS run
        )
        INSERT INTO runs_ended
        SELECT e.* FROM cancelled CROSS JOIN LATERAL ended_run(run, 'cancelled', $2, $3, stop_reason => $3) AS e
        "#,
        workflow.id.0,
        now,
        ReasonCode::WorkflowArchived.as_str(),
    )
    .execute(tx)
    .await?;
    Ok(Pass { cancelled: cancelled.rows_affected(), ..Pass::default() })
}

/// Abandons automatic runs that never started and have waited for a slot or an executor longer than a missed time may.
/// Also abandons runs that were handed over and have waited too long to continue.
async fn expire(
    tx: &mut PgConnection,
    workflow: &Workflow,
    automatic: Automatic,
    now: DateTime<Utc>,
) -> sqlx::Result<u64> {
    let expired = lock_expired(tx, workflow, now).await?;
    if expired.is_empty() {
        return Ok(0);
    }
    let reason = |run: &Expired| run.reason(automatic).as_str().to_owned();
    let (ids, reasons): (Vec<_>, Vec<_>) = expired.iter().map(|run| (run.id, reason(run))).unzip();
    abandon_runs(tx, &ids, &reasons, now).await?;
    Ok(ids.len() as u64)
}

struct Expired {
    id: Uuid,
    is_queued: bool,
    is_handed_over: bool,
}

impl Expired {
    /// A queued run that a pause or a freeze holds does not wait for a slot.
    fn reason(&self, automatic: Automatic) -> ReasonCode {
        if self.is_handed_over {
            ReasonCode::HandedOverNotTaken
        } else if self.is_queued && automatic == Automatic::MayStart {
            ReasonCode::SlotWaitTooLong
        } else {
            ReasonCode::NotStartedInTime
        }
    }
}

async fn lock_expired(tx: &mut PgConnection, workflow: &Workflow, now: DateTime<Utc>) -> sqlx::Result<Vec<Expired>> {
    let policies = &workflow.spec.policies;
    sqlx::query_as!(
        Expired,
        r#"
        -- lock expired runs, but not a run that is being claimed; a manual run, a retry or a backfill does not expire.
        -- A pause may have queued an accepted run again: between two tries it waits until the workflow is resumed, and
        -- it never expires before the start that its spread gave it. A queued run has a minute more, because a pause that
        -- ends in time gives it a slot only at the next turn of the job; and its wait does not count before its time, which
        -- a fire may precede by some minutes
        SELECT id, state = 'queued' AS "is_queued!", COALESCE(handed_over_until < $2, FALSE) AS "is_handed_over!"
          FROM runs
         WHERE workflow_id = $1 AND state IN ('accepted', 'queued')
           AND (handed_over_until < $2
                OR trigger IN ('schedule', 'catch_up') AND run_never_started(attempt, handed_over, cut_off)
                   AND (state = 'queued'
                        AND GREATEST(created_on, scheduled_time)
                            < $2::timestamptz - make_interval(secs => GREATEST($3::integer, $4::integer) + 60)
                        OR state = 'accepted' AND unstarted_run_expires_on(created_on, run_after, $3, $4) < $2))
           FOR UPDATE SKIP LOCKED
        "#,
        workflow.id.0,
        now,
        policies.catch_up_window_secs,
        policies.spread_secs,
    )
    .fetch_all(tx)
    .await
}

struct LiveWorkflow {
    id: i64,
    may_advance: bool,
}

/// Lists the next workflows after `last` with live runs, and whether one of these runs may start or has waited too
/// long.
///
/// A queued run may start by the rule of `Load::has_room_for`. A workflow that is listed and has nothing to do would be
/// locked by each pass.
async fn workflows_with_live_runs(
    db: &mut PgConnection,
    last: i64,
    now: DateTime<Utc>,
) -> sqlx::Result<Vec<LiveWorkflow>> {
    sqlx::query_as!(
        LiveWorkflow,
        r#"
        -- workflows with live runs: by key, each run read once, however many of them wait
        WITH live AS MATERIALIZED (
            SELECT workflow_id,
                   count(*) FILTER (WHERE state <> 'queued') AS busy,
                   count(*) FILTER (WHERE state <> 'queued' AND NOT live) AS made_up,
                   count(*) FILTER (WHERE state = 'accepted' AND automatic) AS accepted_automatic,
                   count(*) FILTER (WHERE state = 'queued' AND live) AS waiting_live,
                   count(*) FILTER (WHERE state = 'queued' AND trigger = 'manual') AS waiting_manual,
                   count(*) FILTER (WHERE state <> 'running') AS unstarted,
                   min(created_on) FILTER (WHERE state = 'queued' AND trigger = 'catch_up') AS first_catch_up,
                   min(created_on) FILTER (WHERE state = 'queued' AND trigger = 'backfill') AS first_backfill,
                   min(created_on) FILTER (WHERE state = 'queued' AND trigger = 'retry') AS first_retry,
                   min(created_on) FILTER (WHERE state = 'queued' AND automatic AND never_started) AS oldest_queued,
                   min(created_on) FILTER (WHERE state = 'accepted' AND automatic AND never_started) AS oldest_accepted,
                   min(handed_over_until) AS handed_over_until
              FROM (SELECT workflow_id, state, trigger, created_on, handed_over_until,
                           trigger IN ('schedule', 'catch_up') AS automatic, trigger IN ('schedule', 'manual') AS live,
                           run_never_started(attempt, handed_over, cut_off) AS never_started
                      FROM runs
                     WHERE state IN ('accepted', 'queued', 'running') AND workflow_id > $1) r
             GROUP BY workflow_id
             ORDER BY workflow_id
             LIMIT $3
        ), frozen AS MATERIALIZED (
            SELECT team_id FROM freezes WHERE ends_on > $2 AND starts_on <= $2
        )
        SELECT l.workflow_id AS "id!",
               COALESCE(CASE
                   WHEN w.state = 'archived' THEN l.unstarted > 0
                        -- a claim must not read them, and some are accepted in a pause: between two tries, or handed over
                   WHEN p.is_paused AND l.accepted_automatic > 0 THEN TRUE
                        -- a freeze changes them only if a run that a person requested needs their slot
                   WHEN p.is_frozen AND l.accepted_automatic > 0 AND (l.waiting_manual > 0 OR l.first_retry IS NOT NULL) THEN TRUE
                   ELSE l.busy < p.slots
                        AND (q.live > 0
                             OR q.first_made_up IS NOT NULL AND l.made_up = 0
                             OR w.overlap_policy = 'concurrent' AND b.first <= q.first_made_up)
               END
               OR l.oldest_queued < $2::timestamptz - make_interval(secs => GREATEST(w.catch_up_window_secs, w.spread_secs) + 60)
               OR l.oldest_accepted < $2::timestamptz - make_interval(secs => GREATEST(w.catch_up_window_secs, w.spread_secs))
               OR l.handed_over_until < $2,
               FALSE) AS "may_advance!"
          FROM live l
               -- the last one ends the batch, also if it was deleted
          LEFT JOIN workflows w ON w.id = l.workflow_id
         CROSS JOIN LATERAL (SELECT CASE w.overlap_policy WHEN 'concurrent' THEN w.max_concurrent ELSE 1 END AS slots,
                                    w.state = 'paused' AND (w.pause_until IS NULL OR w.pause_until > $2) AS is_paused,
                                    EXISTS (SELECT FROM frozen f WHERE f.team_id IS NULL OR f.team_id = w.team_id) AS is_frozen) p
               -- what may get a slot: in a pause only manual runs, retries and backfills, in a freeze no backfill
         CROSS JOIN LATERAL (SELECT CASE WHEN p.is_paused OR NOT p.is_frozen THEN l.first_backfill END AS first) b
         CROSS JOIN LATERAL (SELECT CASE WHEN p.is_paused OR p.is_frozen THEN l.waiting_manual ELSE l.waiting_live END AS live,
                                    LEAST(b.first, l.first_retry,
                                          CASE WHEN NOT (p.is_paused OR p.is_frozen) THEN l.first_catch_up END) AS first_made_up) q
         ORDER BY l.workflow_id
        "#,
        last,
        now,
        BATCH,
    )
    .fetch_all(db)
    .await
}
