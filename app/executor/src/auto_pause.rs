//! Step 7 of 7: pauses a workflow that fails again and again (`pause_after_failures`).
//!
//! It locks the workflow in its own transaction, as every edit does. If two instances come to the same result, the
//! second one finds the workflow paused.

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use schedule::{Clock, WorkflowId};
use workflows::audit::Edit;
use workflows::id::first_run_id_of;
use workflows::notify::Notifier;
use workflows::reasons::{Reason, ReasonCode};
use workflows::{PausedBy, State, Workflow, lock_for_edit, save_workflow};

use crate::claim::Claimed;

/// Pauses a run's workflow if enough runs in a row have failed. If this fails, the next failed run tries again.
pub(crate) async fn pause_after(pool: &PgPool, clock: &Clock, notifier: &Notifier, run: &Claimed) {
    if run.pause_after_failures.is_none() {
        return;
    }
    match pause(pool, clock, WorkflowId(run.workflow_id)).await {
        Ok(Some(failures)) => {
            // The line of the edit is the same for a pause that a person requested.
            tracing::warn!(
                workflow_id = run.workflow_id,
                failures,
                "workflow paused by cronbox: its last runs failed; it stays paused until a caller resumes it"
            );
            notifier.request_notification();
        }
        Ok(None) => {}
        Err(error) => {
            tracing::warn!(workflow_id = run.workflow_id, %error, "failed runs not counted; the next failed run of the workflow counts them");
        }
    }
}

/// Returns the number of failed runs if it has paused the workflow.
async fn pause(pool: &PgPool, clock: &Clock, id: WorkflowId) -> sqlx::Result<Option<i32>> {
    let mut tx = db::begin_transaction(pool).await?;
    let Some((before, now)) = lock_for_edit(&mut tx, id, None, clock).await? else { return Ok(None) };
    let Some(most) = before.spec.policies.pause_after_failures.filter(|_| before.state == State::Active) else {
        return Ok(None);
    };
    if failed_in_a_row(&mut tx, id, most).await? < i64::from(most) {
        return Ok(None);
    }
    let edit = Edit::without_request("cronbox", now);
    let reason = Reason::with_fact(ReasonCode::FailuresInARow, most).to_string();
    let paused_by = Some(PausedBy::Cronbox);
    let next = Workflow { state: State::Paused, pause_reason: Some(reason), paused_by, ..before.clone() };
    save_workflow(&mut tx, &before, next, "pause", &edit).await?;
    tx.commit().await?;
    Ok(Some(most))
}

/// Counts how many of the last runs failed since the schedule was activated or resumed; at most `most`.
async fn failed_in_a_row(tx: &mut PgConnection, id: WorkflowId, most: i32) -> sqlx::Result<i64> {
    let since = counted_since(tx, id).await?;
    sqlx::query_scalar!(
        r#"
        -- failed runs in a row; cancelled and abandoned runs say nothing about the workflow
        SELECT count(*) FILTER (WHERE state IN ('failed', 'timed_out')) AS "count!"
          FROM (SELECT state FROM runs_ended
                 WHERE workflow_id = $1 AND state IN ('succeeded', 'failed', 'timed_out') AND created_on >= $2
                       -- the days before it are not planned
                   AND id >= $4
                 ORDER BY id DESC
                 LIMIT $3) AS last
        "#,
        id.0,
        since,
        i64::from(most),
        first_run_id_of(since),
    )
    .fetch_one(tx)
    .await
}

async fn counted_since(tx: &mut PgConnection, id: WorkflowId) -> sqlx::Result<DateTime<Utc>> {
    sqlx::query_scalar!(
        r#"
        -- a resume begins a new count; if the workflow has no schedule, its last edit does
        SELECT COALESCE(l.activated_on, w.updated_on) AS "since!"
          FROM workflows w LEFT JOIN ledger l ON l.workflow_id = w.id
         WHERE w.id = $1
        "#,
        id.0,
    )
    .fetch_one(tx)
    .await
}
