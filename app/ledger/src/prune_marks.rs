//! Step 7 of 7: up to which time rows were ever pruned. A row older than its mark may have been removed.

use chrono::{DateTime, Utc};
use db::PgConnection;

/// Raises the marks before rows are removed, so that a reader that misses a row sees the mark.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the query.
pub async fn raise_marks(db: &mut PgConnection, runs: DateTime<Utc>, occurrences: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- raise the prune marks: they never go back, whatever the retention becomes
        INSERT INTO prune_marks AS m (subject, pruned_before) VALUES ('runs', $1), ('occurrences', $2)
        ON CONFLICT (subject) DO UPDATE SET pruned_before = excluded.pruned_before
         WHERE m.pruned_before < excluded.pruned_before
        "#,
        runs,
        occurrences,
    )
    .execute(db)
    .await
    .map(drop)
}

/// Returns the marks of runs (by their end) and of occurrences (by their time); `None`: nothing was ever pruned.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the query.
pub async fn read_marks(db: &mut PgConnection) -> sqlx::Result<(Option<DateTime<Utc>>, Option<DateTime<Utc>>)> {
    let row = sqlx::query!(
        r#"
        -- read the prune marks
        SELECT max(pruned_before) FILTER (WHERE subject = 'runs') AS runs,
               max(pruned_before) FILTER (WHERE subject = 'occurrences') AS occurrences
          FROM prune_marks
        "#
    )
    .fetch_one(db)
    .await?;
    Ok((row.runs, row.occurrences))
}

/// Returns the mark of occurrences.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the query.
pub async fn read_occurrences_mark(db: &mut PgConnection) -> sqlx::Result<Option<DateTime<Utc>>> {
    Ok(read_marks(db).await?.1)
}
