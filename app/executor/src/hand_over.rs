//! Step 7 of 7: hands over the run of an attempt that a shutdown interrupts. It does not count as lost.

use chrono::{DateTime, Utc};
use db::PgConnection;
use ledger::runs::{RunState, abandon_runs};
use uuid::Uuid;
use workflows::State;
use workflows::definition::policies::OnLost;
use workflows::reasons::ReasonCode;

use crate::claim::Fence;

/// Whether the attempt may have reached its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It may have.
    Perhaps,
    /// No byte was sent.
    Nothing,
}

/// The row of the run.
struct Row {
    is_cancelled: bool,
    on_lost: OnLost,
    workflow_state: State,
}

/// Hands over one attempt: its run is accepted again, or ends here. Returns the state, or `None` if another attempt has
/// the run.
///
/// If the run has started, it may continue for `max_age_secs`.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn hand_over(
    tx: &mut PgConnection,
    instance: Uuid,
    fence: Fence,
    sent: Sent,
    max_age_secs: f64,
    now: DateTime<Utc>,
) -> sqlx::Result<Option<RunState>> {
    let Some(row) = lock(tx, instance, fence).await? else { return Ok(None) };
    let is_archived = row.workflow_state == State::Archived;
    if row.is_cancelled || is_archived && sent == Sent::Nothing {
        end(tx, fence, now).await?;
        return Ok(Some(RunState::Cancelled));
    }
    if sent == Sent::Perhaps && (is_archived || row.on_lost == OnLost::Abandon) {
        abandon_runs(tx, &[fence.id], &[ReasonCode::CutOffByShutdown.as_str().to_owned()], now).await?;
        return Ok(Some(RunState::Abandoned));
    }
    accept_again(tx, fence, sent, max_age_secs, now).await?;
    Ok(Some(RunState::Accepted))
}

async fn lock(tx: &mut PgConnection, instance: Uuid, fence: Fence) -> sqlx::Result<Option<Row>> {
    sqlx::query_as!(
        Row,
        r#"
        -- lock a run that is handed over
        SELECT r.cancel_requested_on IS NOT NULL AS "is_cancelled!", w.on_lost AS "on_lost: OnLost",
               w.state AS "workflow_state: State"
          FROM runs r JOIN workflows w ON w.id = r.workflow_id
         WHERE r.id = $1 AND r.attempt = $2 AND r.state = 'running' AND r.locked_by = $3
           FOR UPDATE OF r
        "#,
        fence.id,
        fence.attempt,
        instance,
    )
    .fetch_optional(tx)
    .await
}

async fn end(tx: &mut PgConnection, fence: Fence, now: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- end a run that is to be cancelled, instead of handing it over
        WITH cancelled AS (
            DELETE FROM runs_live r WHERE r.id = $1 RETURNING r AS run
        )
        INSERT INTO runs_ended
        SELECT e.*
          FROM cancelled
         CROSS JOIN LATERAL ended_run(run, 'cancelled', GREATEST($2, (run).started_on),
                                      COALESCE((run).cancel_reason, 'cancelled_on_request')) AS e
        "#,
        fence.id,
        now,
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn accept_again(
    tx: &mut PgConnection,
    fence: Fence,
    sent: Sent,
    max_age_secs: f64,
    now: DateTime<Utc>,
) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- hand over a run: no recovery, because its instance is not lost
        WITH again AS (
            UPDATE runs_live
               SET state = 'accepted', run_after = LEAST(run_after, $3), handed_over = handed_over + 1,
                   cut_off = cut_off + $2, locked_by = NULL, locked_at = NULL, lease_until = NULL,
                   handed_over_until = CASE WHEN NOT run_never_started(attempt, handed_over + 1, cut_off + $2) THEN
                                            cronbox_now() + make_interval(secs => $4)
                                       END
             WHERE id = $1
            RETURNING id, attempt, started_on
        )
        INSERT INTO run_attempts (run_id, attempt, started_on, ended_on, outcome)
        SELECT id, attempt, started_on, cronbox_now(), 'handed_over' FROM again
        "#,
        fence.id,
        i32::from(sent == Sent::Perhaps),
        now,
        max_age_secs,
    )
    .execute(tx)
    .await
    .map(drop)
}
