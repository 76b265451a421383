//! Step 7 of 7: ends runs that should have ended by themselves. A job.
//!
//! An executor stops an attempt at its workflow's timeout. One that has not done so a minute later is
//! stuck: its run ends here, and the executor hears at its next heartbeat that the run is not its own.
//! An executor that is silent is another case, whatever the time: its runs are lost (`recover.rs`).

use chrono::{DateTime, TimeDelta, Utc};
use schedule::WorkflowId;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::App;
use crate::config::HARD_TIMEOUT_MARGIN;
use crate::jobs::Did;
use crate::queue;

/// Runs in one pass.
const BATCH: i64 = 100;

struct Stuck {
    id: Uuid,
    workflow_id: i64,
}

/// Ends what runs a minute past its timeout.
///
/// # Errors
/// The database's.
pub async fn sweep(app: &App) -> anyhow::Result<Did> {
    let now = app.clock.now();
    let ended = end_stuck(&mut *app.pool.acquire().await?, app.config.lost_after_secs, now).await?;
    for Stuck { id, workflow_id } in &ended {
        tracing::error!(run_id = %id, "run {id} did not end at its timeout and was ended from outside");
        queue::advance(&app.pool, WorkflowId(*workflow_id), now).await?;
    }
    app.wake.poke();
    Ok(match ended.len() {
        0 => Did::Nothing,
        n if n >= usize::try_from(BATCH).unwrap_or(usize::MAX) => Did::Some(format!("{n} runs have timed out")),
        n => Did::All(format!("{n} runs have timed out")),
    })
}

async fn end_stuck(db: &mut PgConnection, lost_after_secs: u64, now: DateTime<Utc>) -> sqlx::Result<Vec<Stuck>> {
    let alive_secs = f64::from(u32::try_from(lost_after_secs).unwrap_or(u32::MAX)) / 4.0;
    let started_before = now - TimeDelta::from_std(HARD_TIMEOUT_MARGIN).unwrap_or_default();
    sqlx::query_as!(
        Stuck,
        r#"
        -- end stuck runs: only of an instance that is alive; a lost run is not a slow one
        WITH stuck AS MATERIALIZED (
            SELECT r.id FROM runs r JOIN workflows w ON w.id = r.workflow_id
             WHERE r.state = 'running' AND r.started_on + make_interval(secs => w.timeout_secs) <= $2
               AND r.locked_at > cronbox_now() - make_interval(secs => $1)
             ORDER BY r.started_on
             LIMIT $4
               FOR UPDATE OF r SKIP LOCKED
        )
        UPDATE runs r
           SET state = 'timed_out', tries = tries + 1, finished_on = $3,
               error = 'it did not end at its timeout and was ended from outside',
               duration_ms = (EXTRACT(EPOCH FROM $3 - started_on) * 1000)::bigint,
               locked_by = NULL, locked_at = NULL
          FROM stuck
         WHERE r.id = stuck.id AND r.state = 'running'
        RETURNING r.id, r.workflow_id
        "#,
        alive_secs,
        started_before,
        now,
        BATCH,
    )
    .fetch_all(db)
    .await
}
