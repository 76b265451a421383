//! Step 7 of 7: runs that wait for a slot, and how they come to one or are given up.
//!
//! Whoever sees a run end promotes the next; the job looks at all that wait, because whoever saw it
//! may have died. Nothing is remembered but the runs themselves.

use chrono::{DateTime, TimeDelta, Utc};
use schedule::WorkflowId;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::App;
use crate::jobs::Did;
use crate::overlap;
use crate::runs::{self, Trigger};
use crate::workflows::{self, State, Workflow};

/// Workflows looked at by one statement of a pass.
const BATCH: i64 = 500;

/// What a pass, or a look at one workflow, did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Runs that got their slot.
    pub promoted: u64,
    /// Runs that had waited too long.
    pub abandoned: u64,
}

/// The job: a [`pass`] over all workflows.
///
/// # Errors
/// The database's.
pub async fn look(app: &App) -> anyhow::Result<Did> {
    let Pass { promoted, abandoned } = pass(&app.pool, app.clock.now()).await?;
    if promoted + abandoned == 0 {
        return Ok(Did::Nothing);
    }
    app.wake.poke();
    Ok(Did::All(format!("of runs that waited {promoted} may start, {abandoned} are given up")))
}

/// Looks at every workflow of which a run waits and may start, or has waited too long.
///
/// # Errors
/// The database's; what was done for other workflows stands.
pub async fn pass(pool: &PgPool, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let mut done = Pass::default();
    let mut last = 0;
    loop {
        let workflows = waiting(&mut *pool.acquire().await?, last, now).await?;
        let Some(end) = workflows.last() else { return Ok(done) };
        last = *end;
        for id in workflows {
            let one = advance(pool, WorkflowId(id), now).await?;
            done.promoted += one.promoted;
            done.abandoned += one.abandoned;
        }
    }
}

/// Gives the free slots of one workflow to those who wait; after a run of it has ended.
///
/// # Errors
/// The database's.
pub async fn advance(pool: &PgPool, workflow: WorkflowId, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let mut tx = db::begin(pool).await?;
    let mut done = Pass::default();
    if let Some(workflow) = workflows::lock(&mut tx, workflow, None, now).await?
        && overlap::load(&mut tx, workflow.id).await?.waiting() > 0
    {
        done.abandoned = expire(&mut tx, &workflow, now).await?;
        done.promoted = promote(&mut tx, &workflow, now).await?;
    }
    tx.commit().await?;
    Ok(done)
}

/// Starts those who wait, the first first, while there is room; the workflow is locked.
///
/// # Errors
/// The database's.
pub(crate) async fn promote(tx: &mut PgConnection, workflow: &Workflow, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let mut promoted = 0;
    while let Some(next) = first(tx, workflow).await? {
        if !overlap::load(tx, workflow.id).await?.has_room_for(workflow, next.trigger) {
            break;
        }
        accept(tx, next.id, now).await?;
        promoted += 1;
    }
    Ok(promoted)
}

struct Waiting {
    id: Uuid,
    trigger: Trigger,
}

async fn first(tx: &mut PgConnection, workflow: &Workflow) -> sqlx::Result<Option<Waiting>> {
    sqlx::query_as!(
        Waiting,
        r#"
        -- the first that waits: live before made up for; under a pause what a person asked for alone
        SELECT id, trigger AS "trigger: Trigger"
          FROM runs
         WHERE workflow_id = $1 AND state = 'queued'
           AND ($2 OR trigger NOT IN ('schedule', 'catch_up'))
         ORDER BY trigger NOT IN ('schedule', 'manual'), created_on, id
         LIMIT 1
        "#,
        workflow.id.0,
        workflow.state == State::Active,
    )
    .fetch_optional(tx)
    .await
}

async fn accept(tx: &mut PgConnection, run: Uuid, now: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- accept a queued run: whoever cancelled it meanwhile has won
        UPDATE runs SET state = 'accepted', run_after = GREATEST(run_after, $2) WHERE id = $1 AND state = 'queued'
        "#,
        run,
        now,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Gives up what has waited longer than a missed time may, and all that waits for an archived workflow.
async fn expire(tx: &mut PgConnection, workflow: &Workflow, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let (reason, since) = match workflow.state {
        State::Archived => ("the workflow was archived", None),
        State::Active | State::Paused => {
            let window = TimeDelta::seconds(workflow.spec.policies.catch_up_window_secs.into());
            ("it waited for a slot longer than the catch-up window", Some(now - window))
        }
    };
    let expired = expired(tx, workflow, since).await?;
    let reasons = vec![reason.to_owned(); expired.len()];
    runs::abandon(tx, &expired, &reasons, now).await?;
    Ok(expired.len() as u64)
}

async fn expired(tx: &mut PgConnection, workflow: &Workflow, since: Option<DateTime<Utc>>) -> sqlx::Result<Vec<Uuid>> {
    sqlx::query_scalar!(
        r#"
        -- expired queued runs; what a person asked for waits for as long as it takes
        SELECT id FROM runs
         WHERE workflow_id = $1 AND state = 'queued'
           AND ($2::timestamptz IS NULL OR trigger IN ('schedule', 'catch_up') AND created_on < $2)
        "#,
        workflow.id.0,
        since,
    )
    .fetch_all(tx)
    .await
}

/// Workflows after `last` with a run that may start, or that has waited too long.
async fn waiting(db: &mut PgConnection, last: i64, now: DateTime<Utc>) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        r#"
        -- workflows with runs that wait, but not those that can only go on waiting
        SELECT DISTINCT q.workflow_id
          FROM runs q JOIN workflows w ON w.id = q.workflow_id
         WHERE q.state = 'queued' AND q.workflow_id > $1
           AND (w.state = 'archived'
                OR w.overlap_policy = 'replace'
                OR q.trigger IN ('schedule', 'catch_up')
                   AND q.created_on < $2::timestamptz - make_interval(secs => w.catch_up_window_secs)
                OR (SELECT count(*) FROM runs b WHERE b.workflow_id = w.id AND b.state IN ('accepted', 'running'))
                   < CASE w.overlap_policy WHEN 'concurrent' THEN w.max_concurrent ELSE 1 END)
         ORDER BY q.workflow_id
         LIMIT $3
        "#,
        last,
        now,
        BATCH,
    )
    .fetch_all(db)
    .await
}
