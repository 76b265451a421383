//! Step 7 of 7: gives the free slots of a workflow to its queued runs, under the workflow's lock.

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use uuid::Uuid;
use workflows::{State, Workflow};

use crate::admission::load;
use crate::runs::Trigger;

/// Queues the accepted automatic runs of a paused workflow again, so that manual runs can get its slots.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(crate) async fn defer_automatic_runs(tx: &mut PgConnection, workflow: WorkflowId) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- queue automatic runs again; a run that an executor has claimed meanwhile continues
        UPDATE runs SET state = 'queued'
         WHERE workflow_id = $1 AND state = 'accepted' AND trigger IN ('schedule', 'catch_up')
        "#,
        workflow.0,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Starts queued runs in order while slots are free; the caller has locked the workflow.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(crate) async fn promote_queued_runs(
    tx: &mut PgConnection,
    workflow: &Workflow,
    now: DateTime<Utc>,
) -> sqlx::Result<u64> {
    let mut promoted = 0;
    while let Some(next) = first(tx, workflow).await? {
        if !load::read_load(tx, workflow).await?.has_room_for(&workflow.spec.policies, next.trigger) {
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
        -- the first run that waits: live before deferred; during a pause only manual runs, retries and backfills
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
        -- accept a queued run: a cancellation that committed meanwhile wins
        UPDATE runs SET state = 'accepted', run_after = GREATEST(run_after, $2) WHERE id = $1 AND state = 'queued'
        "#,
        run,
        now,
    )
    .execute(tx)
    .await
    .map(drop)
}
