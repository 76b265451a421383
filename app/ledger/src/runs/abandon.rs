//! Step 7 of 7: abandons runs, and records the reason in the run and in the ledger.

use chrono::{DateTime, Utc};
use db::PgConnection;
use uuid::Uuid;

/// Abandons runs that have not ended, each for its stored reason, and their occurrences.
///
/// A retry or a backfill's run is not the run that its occurrence names, so abandoning it changes no decision.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn abandon_runs(
    tx: &mut PgConnection,
    ids: &[Uuid],
    reasons: &[String],
    now: DateTime<Utc>,
) -> sqlx::Result<()> {
    let abandoned = give_up(tx, ids, reasons, now).await?;
    let (runs, times): (Vec<_>, Vec<_>) =
        abandoned.into_iter().filter_map(|run| Some((run.id, run.scheduled_time?))).unzip();
    take_back(tx, &runs, &times, now).await
}

struct Abandoned {
    id: Uuid,
    scheduled_time: Option<DateTime<Utc>>,
}

async fn give_up(
    tx: &mut PgConnection,
    ids: &[Uuid],
    reasons: &[String],
    now: DateTime<Utc>,
) -> sqlx::Result<Vec<Abandoned>> {
    sqlx::query_as!(
        Abandoned,
        r#"
        -- abandon runs; a run that ended meanwhile keeps its state
        WITH abandoned AS (
            DELETE FROM runs_live r
             USING UNNEST($1::uuid[], $2::text[]) AS given (id, reason)
             WHERE r.id = given.id
            RETURNING r AS run, given.reason
        )
        INSERT INTO runs_ended
        SELECT e.* FROM abandoned CROSS JOIN LATERAL ended_run(run, 'abandoned', $3, reason) AS e
        RETURNING id, scheduled_time
        "#,
        ids,
        reasons,
        now,
    )
    .fetch_all(tx)
    .await
}

async fn take_back(
    tx: &mut PgConnection,
    ids: &[Uuid],
    times: &[DateTime<Utc>],
    now: DateTime<Utc>,
) -> sqlx::Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        r#"
        -- the times of abandoned runs become abandoned instead of fired: $3 and $4 are the bounds of the times, so that
        -- Postgres plans only their days
        UPDATE occurrences o
           SET decision = 'abandoned', reason = r.error, updated_on = $2
          FROM runs_ended r
         WHERE r.id = ANY($1) AND o.workflow_id = r.workflow_id AND o.scheduled_time = r.scheduled_time AND o.run_id = r.id
           AND o.scheduled_time BETWEEN $3 AND $4 AND o.decision IN ('fired', 'caught_up', 'backfilled')
        "#,
        ids,
        now,
        times.iter().min().copied(),
        times.iter().max().copied(),
    )
    .execute(tx)
    .await
    .map(drop)
}
