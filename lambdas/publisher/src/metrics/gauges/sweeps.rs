//! Step 3 of 7: the gauges of the sweeps: whether one finishes, and what the last one refused.

use db::PgPool;

/// The gauges of the sweeps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sweeps {
    /// Seconds since a sweep last finished; 0 before the first is requested.
    pub(crate) age_secs: f64,
    /// Orphans that are too many to be deleted without force.
    pub(crate) orphans_refused: i64,
    /// Orphans that the next sweep may delete.
    pub(crate) orphans_waiting: i64,
    /// Deletes, disables and changes that are too many to be made without force.
    pub(crate) changes_refused: i64,
}

pub(crate) async fn read_sweep_gauges(pool: &PgPool) -> sqlx::Result<Sweeps> {
    let row = sqlx::query!(
        r#"
        -- sweeps: the age counts from the first request, so that it also rises if no sweep has ever ended
        SELECT EXTRACT(EPOCH FROM cronbox_now() - all_sweeps.since)::float8 AS age,
               last.orphans_refused AS "orphans_refused?", last.orphans_waiting AS "orphans_waiting?",
               last.changes_refused AS "changes_refused?"
          FROM (SELECT COALESCE(max(finished_on), min(requested_on)) AS since FROM sweeps) AS all_sweeps
          LEFT JOIN LATERAL (SELECT orphans_refused, orphans_waiting, changes_refused
                               FROM sweeps
                              WHERE finished_on IS NOT NULL
                              ORDER BY id DESC
                              LIMIT 1) AS last ON TRUE
        "#
    )
    .fetch_one(pool)
    .await?;
    Ok(Sweeps {
        age_secs: row.age.unwrap_or_default().max(0.0),
        orphans_refused: row.orphans_refused.unwrap_or_default(),
        orphans_waiting: row.orphans_waiting.unwrap_or_default(),
        changes_refused: row.changes_refused.unwrap_or_default(),
    })
}
