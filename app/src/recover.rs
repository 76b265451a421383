//! Step 7 of 7: runs whose instance died go on, or are given up with a reason. A job.
//!
//! Lost is what is `running` and has had no sign of life for `LOST_AFTER_SECS`. The *same* run goes on,
//! under its id, on whatever instance claims it; `attempt` then fences off the one that lost it.

use chrono::{DateTime, TimeDelta, Utc};
use schedule::WorkflowId;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::App;
use crate::config::Config;
use crate::jobs::Did;
use crate::policies::OnLost;
use crate::queue;
use crate::runs;
use crate::workflows::State;

/// Runs in one pass.
const BATCH: i64 = 100;

/// A run that nobody is at any more.
struct Lost {
    id: Uuid,
    workflow_id: i64,
    recoveries: i32,
    created_on: DateTime<Utc>,
    is_cancelled: bool,
    on_lost: OnLost,
    workflow_state: State,
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    GoesOn,
    Cancelled,
    Abandoned(String),
}

/// What one pass came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pass {
    go_on: usize,
    cancelled: usize,
    abandoned: usize,
}

/// Takes over what dead instances have left running.
///
/// # Errors
/// The database's; nothing was changed then.
pub async fn recover(app: &App) -> anyhow::Result<Did> {
    let mut tx = db::begin(&app.pool).await?;
    let lost = lock_lost(&mut tx, app.config.lost_after_secs, BATCH).await?;
    let pass = settle(&mut tx, &lost, &app.config, app.clock.now()).await?;
    tx.commit().await?;
    for run in lost.iter().filter(|_| pass.abandoned + pass.cancelled > 0) {
        queue::advance(&app.pool, WorkflowId(run.workflow_id), app.clock.now()).await?;
    }
    app.wake.poke();
    Ok(match lost.len() {
        0 => Did::Nothing,
        // As many as a pass takes: there may be more.
        n if n >= usize::try_from(BATCH).unwrap_or(usize::MAX) => Did::Some(pass.in_words()),
        _ => Did::All(pass.in_words()),
    })
}

/// Gives back what this instance cuts off at its end, by the same rules; others need not wait for the lease.
pub(crate) async fn give_back(app: &App) -> sqlx::Result<()> {
    let mut tx = db::begin(&app.pool).await?;
    let own = lock_own(&mut tx, app.instance).await?;
    let pass = settle(&mut tx, &own, &app.config, app.clock.now()).await?;
    tx.commit().await?;
    tracing::info!("at shutdown: {}", pass.in_words());
    Ok(())
}

async fn settle(tx: &mut PgConnection, lost: &[Lost], config: &Config, now: DateTime<Utc>) -> sqlx::Result<Pass> {
    let (mut go_on, mut cancelled, mut abandoned, mut reasons) = (vec![], vec![], vec![], vec![]);
    for run in lost {
        match run.verdict(config, now) {
            Verdict::GoesOn => go_on.push(run.id),
            Verdict::Cancelled => cancelled.push(run.id),
            Verdict::Abandoned(reason) => {
                tracing::error!(run_id = %run.id, reason, "run {} is abandoned: {reason}", run.id);
                abandoned.push(run.id);
                reasons.push(reason);
            }
        }
    }
    let pass = Pass { go_on: go_on.len(), cancelled: cancelled.len(), abandoned: abandoned.len() };
    let_go_on(tx, &go_on, now).await?;
    let_be_cancelled(tx, &cancelled, now).await?;
    runs::abandon(tx, &abandoned, &reasons, now).await?;
    Ok(pass)
}

impl Lost {
    fn verdict(&self, config: &Config, now: DateTime<Utc>) -> Verdict {
        let most = config.recovery_max_attempts;
        let oldest = TimeDelta::seconds(config.recovery_max_age_secs.into());
        if self.is_cancelled {
            Verdict::Cancelled
        } else if self.workflow_state == State::Archived {
            Verdict::Abandoned("its instance was lost, and its workflow is archived".to_owned())
        } else if self.on_lost == OnLost::Abandon {
            Verdict::Abandoned("its instance was lost, and on_lost is abandon".to_owned())
        } else if i64::from(self.recoveries) >= i64::from(most) {
            Verdict::Abandoned(format!("its instance was lost, and it had gone on {most} times already"))
        } else if now - self.created_on > oldest {
            Verdict::Abandoned(format!(
                "its instance was lost, and it was accepted more than {} s ago",
                oldest.num_seconds()
            ))
        } else {
            Verdict::GoesOn
        }
    }
}

impl Pass {
    fn in_words(self) -> String {
        let Pass { go_on, cancelled, abandoned } = self;
        format!("of lost runs {go_on} go on, {abandoned} are abandoned, {cancelled} cancelled")
    }
}

async fn lock_lost(tx: &mut PgConnection, lost_after_secs: u64, limit: i64) -> sqlx::Result<Vec<Lost>> {
    let lost_after_secs = f64::from(u32::try_from(lost_after_secs).unwrap_or(u32::MAX));
    sqlx::query_as!(
        Lost,
        r#"
        -- lock lost runs: those of a paused workflow wait, and are left out here, or they would fill each pass
        SELECT r.id, r.workflow_id, r.recoveries, r.created_on, r.cancel_requested_on IS NOT NULL AS "is_cancelled!",
               w.on_lost AS "on_lost: OnLost", w.state AS "workflow_state: State"
          FROM runs r JOIN workflows w ON w.id = r.workflow_id
         WHERE r.state = 'running' AND r.locked_at <= cronbox_now() - make_interval(secs => $1)
           AND (w.state <> 'paused' OR r.cancel_requested_on IS NOT NULL)
         ORDER BY r.locked_at
         LIMIT $2
           FOR UPDATE OF r SKIP LOCKED
        "#,
        lost_after_secs,
        limit,
    )
    .fetch_all(tx)
    .await
}

async fn lock_own(tx: &mut PgConnection, instance: Uuid) -> sqlx::Result<Vec<Lost>> {
    sqlx::query_as!(
        Lost,
        r#"
        -- lock the runs of an instance that ends
        SELECT r.id, r.workflow_id, r.recoveries, r.created_on, r.cancel_requested_on IS NOT NULL AS "is_cancelled!",
               w.on_lost AS "on_lost: OnLost", w.state AS "workflow_state: State"
          FROM runs r JOIN workflows w ON w.id = r.workflow_id
         WHERE r.state = 'running' AND r.locked_by = $1
           AND (w.state <> 'paused' OR r.cancel_requested_on IS NOT NULL)
           FOR UPDATE OF r
        "#,
        instance,
    )
    .fetch_all(tx)
    .await
}

async fn let_go_on(tx: &mut PgConnection, ids: &[Uuid], now: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- let lost runs go on: locked by this transaction, so nothing else has changed them
        UPDATE runs
           SET state = 'accepted', recoveries = recoveries + 1, run_after = LEAST(run_after, $2),
               locked_by = NULL, locked_at = NULL
         WHERE id = ANY($1)
        "#,
        ids,
        now,
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn let_be_cancelled(tx: &mut PgConnection, ids: &[Uuid], now: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- end lost runs that somebody had asked to cancel
        UPDATE runs
           SET state = 'cancelled', error = 'cancelled on request; its instance was lost', finished_on = $2,
               locked_by = NULL, locked_at = NULL
         WHERE id = ANY($1)
        "#,
        ids,
        now,
    )
    .execute(tx)
    .await
    .map(drop)
}
