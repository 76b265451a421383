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
    take_back(tx, &abandoned, now).await
}

async fn give_up(
    tx: &mut PgConnection,
    ids: &[Uuid],
    reasons: &[String],
    now: DateTime<Utc>,
) -> sqlx::Result<Vec<Uuid>> {
    sqlx::query_scalar!(
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
        RETURNING id
        "#,
        ids,
        reasons,
        now,
    )
    .fetch_all(tx)
    .await
}

async fn take_back(tx: &mut PgConnection, ids: &[Uuid], now: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- the times of abandoned runs become abandoned instead of fired
        UPDATE occurrences o
           SET decision = 'abandoned', reason = r.error, updated_on = $2
          FROM runs_ended r
         WHERE r.id = ANY($1) AND o.workflow_id = r.workflow_id AND o.scheduled_time = r.scheduled_time AND o.run_id = r.id
           AND o.decision IN ('fired', 'caught_up', 'backfilled')
        "#,
        ids,
        now,
    )
    .execute(tx)
    .await
    .map(drop)
}
