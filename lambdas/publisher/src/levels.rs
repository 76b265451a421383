//! Step 3 of 7: how the outbox and the ledger stand, read from the database when metrics are told.

mod ledger;

use std::collections::BTreeMap;

use sqlx::PgPool;

pub(crate) use ledger::Ledger;

/// How the outbox stands, and the ledger.
#[derive(Clone, Debug, Default)]
pub(crate) struct Levels {
    /// The age of the oldest edit that is neither published nor given up.
    pub(crate) lag_secs: f64,
    /// Rows of workflows that are given up; a row whose workflow was revived since is history.
    pub(crate) failed_rows: i64,
    /// Workflows by the class of drift that was found and is not yet repaired.
    pub(crate) drift: BTreeMap<String, i64>,
    /// What became of the times that schedules owed.
    pub(crate) ledger: Ledger,
}

pub(crate) async fn read(pool: &PgPool) -> sqlx::Result<Levels> {
    Ok(Levels {
        lag_secs: lag_secs(pool).await?,
        failed_rows: failed_rows(pool).await?,
        drift: drift(pool).await?,
        ledger: ledger::read(pool).await?,
    })
}

async fn lag_secs(pool: &PgPool) -> sqlx::Result<f64> {
    let secs = sqlx::query_scalar!(
        r#"
        -- lag: by id, which the index has; the oldest id is the oldest edit but for a commit's length
        SELECT EXTRACT(EPOCH FROM cronbox_now() - created_on)::float8 AS "secs!"
          FROM outbox_events
         WHERE processed_on IS NULL
           AND failed_on IS NULL
         ORDER BY id
         LIMIT 1
        "#
    )
    .fetch_optional(pool)
    .await?;
    // The edit's time is the app's clock, this one the database's.
    Ok(secs.unwrap_or_default().max(0.0))
}

async fn failed_rows(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- failed rows
        SELECT COUNT(*) AS "count!"
          FROM outbox_events AS o
          JOIN publications AS p ON p.workflow_id = o.aggregate_id
         WHERE o.failed_on IS NOT NULL
           AND o.processed_on IS NULL
           AND p.error_class = 'permanent'
        "#
    )
    .fetch_one(pool)
    .await
}

async fn drift(pool: &PgPool) -> sqlx::Result<BTreeMap<String, i64>> {
    let classes = sqlx::query!(
        r#"
        -- drift
        SELECT drift AS "class!", COUNT(*) AS "count!" FROM publications WHERE drift IS NOT NULL GROUP BY drift
        "#
    )
    .fetch_all(pool)
    .await?;
    Ok(classes.into_iter().map(|row| (row.class, row.count)).collect())
}
