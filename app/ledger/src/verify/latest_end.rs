//! Step 7 of 7: up to when every due time has its decision, except for workflows whose due times cannot be computed.

use chrono::{DateTime, Utc};
use db::PgConnection;

use crate::due_times;
use crate::followers;
use crate::versions;

/// How many workflows one statement reads.
const BATCH: i64 = 200;

/// A workflow whose times the watchdog has not decided up to the instant in question.
struct Behind {
    id: i64,
    watch_at: DateTime<Utc>,
    accounted: DateTime<Utc>,
}

/// Returns the latest instant up to `until` before which every time is decided.
///
/// The watchdog leaves times undecided while a workflow's timezone or cron is unknown. Such a workflow does not delay
/// the verification of others, because the comparison reports it. The same applies to a workflow that the watchdog
/// could not process in its last pass, which processed all others.
pub(super) async fn find_latest_end(db: &mut PgConnection, until: DateTime<Utc>) -> sqlx::Result<DateTime<Utc>> {
    let undecided_since = followers::find_undecided_since(db, until).await?.unwrap_or(until);
    let mut latest = find_unended_pause(db, until).await?.unwrap_or(until).min(undecided_since);
    let (mut watch_at, mut id) = (DateTime::UNIX_EPOCH, 0);
    loop {
        let behind = behind(db, latest, watch_at, id).await?;
        let Some(last) = behind.last() else { return Ok(latest) };
        (watch_at, id) = (last.watch_at, last.id);
        let instants: Vec<_> = behind.iter().map(|workflow| (workflow.id, workflow.accounted)).collect();
        let versions = versions::read_of_all(db, &instants).await?;
        // A workflow whose timezone or cron is unknown has no time that is known to be due.
        let undecided = behind.iter().filter_map(|workflow| {
            let versions = versions.get(&workflow.id).map(Vec::as_slice).unwrap_or_default();
            let due = due_times::list_due_times(versions, workflow.accounted.min(latest), latest, 1);
            due.times.first().map(|first| first.time.max(workflow.watch_at))
        });
        latest = undecided.min().map_or(latest, |first| first.min(latest));
    }
}

/// Returns when the first pause ended whose end has no version yet: times are due since then, although the versions say
/// that the workflow is paused.
async fn find_unended_pause(db: &mut PgConnection, until: DateTime<Utc>) -> sqlx::Result<Option<DateTime<Utc>>> {
    let ended = sqlx::query_scalar!(
        r#"
        -- the first pause that is over and that no fire, edit or pass of the watchdog has ended
        SELECT pause_until AS "pause_until!"
          FROM workflows w
         WHERE pause_until < $1
           AND NOT EXISTS (SELECT FROM job_failures f WHERE f.job = 'watchdog' AND f.workflow_id = w.id)
         ORDER BY pause_until
         LIMIT 1
        "#,
        until,
    )
    .fetch_optional(db)
    .await?;
    Ok(ended)
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
        -- workflows with times that the watchdog has not decided yet, the earliest first
        SELECT workflow_id AS id, watch_at AS "watch_at!", cursor AS accounted
          FROM ledger l
         WHERE watch_at < $1 AND (watch_at, workflow_id) > ($2, $3)
           AND NOT EXISTS (SELECT FROM job_failures f WHERE f.job = 'watchdog' AND f.workflow_id = l.workflow_id)
         ORDER BY watch_at, workflow_id
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
