//! Step 7 of 7: the statistics of the ledger. Normally every number that an alarm checks is zero.
//!
//! Triggers count each decision and each end of a run by minute and team (migration 48), so that a read of a team or of
//! all teams reads minutes, not rows of the ledger. The statistics of one workflow read its rows.

mod counted;
mod figures;
mod of_workflow;
mod sums;

use chrono::{DateTime, Utc};
use db::PgConnection;

pub use figures::{Delay, Executions, Scope, Stats};
pub use sums::{JOB, Pass, add_up_minutes};

/// Reads the statistics. All statements need the same snapshot.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_stats(db: &mut PgConnection, scope: Scope) -> sqlx::Result<Stats> {
    let stats = live(db, scope).await?;
    let (delay, decisions, executions) = match scope.workflow_id {
        Some(workflow) => {
            let decisions = of_workflow::read_decisions(db, workflow, scope).await?;
            (
                of_workflow::read_delay(db, workflow, scope).await?,
                decisions,
                of_workflow::read_ends(db, workflow, scope).await?,
            )
        }
        None => {
            let counted = counted::read_decisions(db, scope).await?;
            (counted::delay_of(&counted), counted::sum_decisions(&counted), counted::read_ends(db, scope).await?)
        }
    };
    Ok(Stats { delay, decisions, executions, watch_at: watch_at(db, scope).await?, ..stats })
}

async fn live(db: &mut PgConnection, scope: Scope) -> sqlx::Result<Stats> {
    let row = sqlx::query!(
        r#"
        -- runs that have not ended, and the oldest occurrence among them
        SELECT count(*) AS "live!", min(r.scheduled_time) FILTER (WHERE r.trigger IN ('schedule', 'catch_up')) AS oldest
          FROM runs r
         WHERE r.state IN ('accepted', 'queued', 'running')
           AND ($1::bigint IS NULL OR r.team_id = $1)
           AND ($2::bigint IS NULL OR r.workflow_id = $2)
        "#,
        scope.team_id,
        scope.workflow_id,
    )
    .fetch_one(db)
    .await?;
    Ok(Stats { live: row.live, oldest_unresolved: row.oldest, ..Stats::default() })
}

async fn watch_at(db: &mut PgConnection, scope: Scope) -> sqlx::Result<Option<DateTime<Utc>>> {
    sqlx::query_scalar!(
        r#"
        -- the earliest time that the watchdog still has to decide
        SELECT min(watch_at)
          FROM workflows
         WHERE watch_at IS NOT NULL
           AND ($1::bigint IS NULL OR team_id = $1)
           AND ($2::bigint IS NULL OR id = $2)
        "#,
        scope.team_id,
        scope.workflow_id,
    )
    .fetch_one(db)
    .await
}
