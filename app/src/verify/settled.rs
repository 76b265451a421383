//! Step 7 of 7: up to when every due time has its decision, but for workflows that cannot be judged.

use chrono::{DateTime, Utc};
use db::PgConnection;

use crate::owed;
use crate::versions;

/// Workflows read by one statement.
const BATCH: i64 = 200;

/// A workflow that the watchdog has not accounted for up to the instant in question.
struct Behind {
    id: i64,
    watch_at: DateTime<Utc>,
    accounted: DateTime<Utc>,
}

/// The latest instant up to `until` before which nothing is left to decide.
///
/// The watchdog keeps a workflow's account open while its timezone or cron is unknown. Such a workflow delays
/// no proof of others: the comparison names it. Neither does a workflow that the watchdog could not process in its last
/// pass, which has processed all others.
pub(super) async fn through(db: &mut PgConnection, until: DateTime<Utc>) -> sqlx::Result<DateTime<Utc>> {
    let (mut watch_at, mut id) = (DateTime::UNIX_EPOCH, 0);
    loop {
        let behind = behind(db, until, watch_at, id).await?;
        let Some(last) = behind.last() else { return Ok(until) };
        (watch_at, id) = (last.watch_at, last.id);
        let instants: Vec<_> = behind.iter().map(|workflow| (workflow.id, workflow.accounted)).collect();
        let versions = versions::of_all(db, &instants).await?;
        let judged = behind.iter().find(|workflow| {
            let versions = versions.get(&workflow.id).map(Vec::as_slice).unwrap_or_default();
            let open = owed::owing(versions, workflow.accounted.min(until), until, 1);
            // Times before the unknown version are the watchdog's as ever.
            !(open.is_held_back && open.times.is_empty())
        });
        if let Some(workflow) = judged {
            return Ok(workflow.watch_at);
        }
    }
}

async fn behind(
    db: &mut PgConnection,
    until: DateTime<Utc>,
    watch_at: DateTime<Utc>,
    id: i64,
) -> sqlx::Result<Vec<Behind>> {
    sqlx::query_as!(
        Behind,
        r#"
        -- workflows that the watchdog has yet to account for, the most behind first
        SELECT id, watch_at AS "watch_at!", COALESCE(ledger_cursor, watch_at) AS "accounted!"
          FROM workflows w
         WHERE watch_at < $1 AND (watch_at, id) > ($2, $3)
           AND NOT EXISTS (SELECT FROM job_failures f WHERE f.job = 'watchdog' AND f.workflow_id = w.id)
         ORDER BY watch_at, id
         LIMIT $4
        "#,
        until,
        watch_at,
        id,
        BATCH,
    )
    .fetch_all(db)
    .await
}
