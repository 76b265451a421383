//! Step 7 of 7, seen from step 3: how the app's ledger stands.
//!
//! The publisher tells it because it runs apart from the app: an app that is dead raises the alarm, too.

use sqlx::PgPool;

/// How the ledger stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ledger {
    /// How far the watchdog is behind the three minutes that it gives every time owed.
    pub(crate) lag_secs: f64,
    /// Times decided as missed in the last hour, that nobody has run since.
    pub(crate) missed: i64,
    /// Times caught up in the last hour.
    pub(crate) caught_up: i64,
    /// Times and runs given up in the last hour.
    pub(crate) abandoned: i64,
}

pub(crate) async fn read(pool: &PgPool) -> sqlx::Result<Ledger> {
    let lag_secs = lag_secs(pool).await?;
    let (missed, caught_up, unrun) = decisions(pool).await?;
    Ok(Ledger { lag_secs, missed, caught_up, abandoned: unrun + runs_abandoned(pool).await? })
}

async fn lag_secs(pool: &PgPool) -> sqlx::Result<f64> {
    let secs = sqlx::query_scalar!(
        r#"
        -- ledger lag: a time is accounted for once it is 180 s old, so that is no lag
        SELECT EXTRACT(EPOCH FROM cronbox_now() - INTERVAL '180 seconds' - min(watch_at))::float8
          FROM workflows
         WHERE watch_at IS NOT NULL
        "#
    )
    .fetch_one(pool)
    .await?;
    Ok(secs.unwrap_or_default().max(0.0))
}

async fn decisions(pool: &PgPool) -> sqlx::Result<(i64, i64, i64)> {
    let row = sqlx::query!(
        r#"
        -- decisions of the last hour that are not an ordinary fire
        SELECT count(*) FILTER (WHERE decision = 'missed') AS "missed!",
               count(*) FILTER (WHERE decision = 'caught_up') AS "caught_up!",
               count(*) FILTER (WHERE decision = 'abandoned' AND run_id IS NULL) AS "unrun!"
          FROM occurrences
         WHERE decided_on > cronbox_now() - INTERVAL '1 hour'
        "#
    )
    .fetch_one(pool)
    .await?;
    Ok((row.missed, row.caught_up, row.unrun))
}

async fn runs_abandoned(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- runs given up in the last hour
        SELECT count(*) AS "count!"
          FROM runs
         WHERE state = 'abandoned' AND finished_on > cronbox_now() - INTERVAL '1 hour'
        "#
    )
    .fetch_one(pool)
    .await
}
