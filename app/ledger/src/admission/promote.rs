//! Step 7 of 7: gives the free slots of a workflow to its queued runs, under the workflow's lock.

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use uuid::Uuid;
use workflows::Workflow;
use workflows::definition::policies::Policies;

use crate::admission::load::{self, Automatic, Load, slot_limit};
use crate::runs::Trigger;

/// Queues the accepted automatic runs of a workflow again if they are held, so that manual runs can get its slots, and no
/// claim reads what may not start. Returns how many.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(crate) async fn defer_automatic_runs(tx: &mut PgConnection, workflow: WorkflowId) -> sqlx::Result<u64> {
    let deferred = sqlx::query!(
        r#"
        -- queue automatic runs again; a run that an executor has claimed meanwhile continues
        UPDATE runs SET state = 'queued'
         WHERE workflow_id = $1 AND state = 'accepted' AND trigger IN ('schedule', 'catch_up')
        "#,
        workflow.0,
    )
    .execute(tx)
    .await?;
    Ok(deferred.rows_affected())
}

/// Starts queued runs in order while slots are free; the caller has locked the workflow.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(crate) async fn promote_queued_runs(
    tx: &mut PgConnection,
    workflow: &Workflow,
    automatic: Automatic,
    now: DateTime<Utc>,
) -> sqlx::Result<u64> {
    let (policies, mut promoted) = (&workflow.spec.policies, 0);
    loop {
        let load = load::read_load(tx, workflow, automatic).await?;
        if !load.needs_promotion(policies) {
            return Ok(promoted);
        }
        let waiting = list_first(tx, workflow.id, automatic, slot_limit(policies) - load.busy_runs()).await?;
        let chosen = choose_runs(load, policies, &waiting);
        if chosen.is_empty() {
            return Ok(promoted);
        }
        let accepted = accept(tx, &chosen, now).await?;
        promoted += accepted;
        if accepted == chosen.len() as u64 {
            return Ok(promoted);
        }
        // A run was cancelled meanwhile, so its slot is for another one.
    }
}

/// Returns the first of these runs, as far as slots are free for them; they are in their order.
fn choose_runs(mut load: Load, policies: &Policies, waiting: &[Waiting]) -> Vec<Uuid> {
    let mut chosen = Vec::new();
    for run in waiting {
        if !load.has_room_for(policies, run.trigger) {
            break;
        }
        load = load.with_accepted(run.trigger);
        chosen.push(run.id);
    }
    chosen
}

struct Waiting {
    id: Uuid,
    trigger: Trigger,
}

async fn list_first(
    tx: &mut PgConnection,
    workflow: WorkflowId,
    automatic: Automatic,
    most: i64,
) -> sqlx::Result<Vec<Waiting>> {
    sqlx::query_as!(
        Waiting,
        r#"
        -- the first runs that wait: live before deferred; in a pause only manual runs, retries and backfills, in a freeze no backfill
        SELECT id, trigger AS "trigger: Trigger"
          FROM runs
         WHERE workflow_id = $1 AND state = 'queued'
           AND ($2 OR trigger NOT IN ('schedule', 'catch_up'))
           AND NOT ($4 AND trigger = 'backfill')
         ORDER BY trigger NOT IN ('schedule', 'manual'), created_on, id
         LIMIT $3
        "#,
        workflow.0,
        automatic == Automatic::MayStart,
        most,
        automatic == Automatic::Frozen,
    )
    .fetch_all(tx)
    .await
}

/// Returns how many of these runs have a slot now.
async fn accept(tx: &mut PgConnection, runs: &[Uuid], now: DateTime<Utc>) -> sqlx::Result<u64> {
    let accepted = sqlx::query!(
        r#"
        -- accept queued runs: a cancellation that committed meanwhile wins
        UPDATE runs SET state = 'accepted', run_after = GREATEST(run_after, $2) WHERE id = ANY($1) AND state = 'queued'
        "#,
        runs,
        now,
    )
    .execute(tx)
    .await?;
    Ok(accepted.rows_affected())
}
