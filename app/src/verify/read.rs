//! Step 7 of 7: what the proof reads, page by page: what was owed, and what is recorded.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::Span;
use crate::occurrences::Decision;
use crate::versions::{EndedBy, Version};
use crate::workflows::State;

/// Workflows compared in one snapshot.
const PAGE: i64 = 500;
pub(super) struct Page {
    pub(super) id: i64,
    pub(super) ledger_since: Option<DateTime<Utc>>,
}

pub(super) struct Row {
    pub(super) scheduled_time: DateTime<Utc>,
    pub(super) decision: Decision,
    pub(super) is_early: bool,
}

pub(super) async fn watched_through(db: &mut PgConnection) -> sqlx::Result<Option<DateTime<Utc>>> {
    sqlx::query_scalar!(
        r#"
        -- watched through: the earliest time that the watchdog still has to account for
        SELECT min(watch_at) FROM workflows WHERE watch_at IS NOT NULL
        "#
    )
    .fetch_one(db)
    .await
}

pub(super) async fn one_snapshot(tx: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").execute(tx).await.map(drop)
}

pub(super) async fn page(tx: &mut PgConnection, after: i64) -> sqlx::Result<Vec<Page>> {
    sqlx::query_as!(
        Page,
        r#"
        -- a page of workflows, whatever their state: an archived one owed its times, too
        SELECT id, ledger_since FROM workflows WHERE id > $1 ORDER BY id LIMIT $2
        "#,
        after,
        PAGE,
    )
    .fetch_all(tx)
    .await
}

pub(super) async fn versions(
    tx: &mut PgConnection,
    ids: &[i64],
    slice: Span,
) -> sqlx::Result<HashMap<i64, Vec<Version>>> {
    let rows = sqlx::query!(
        r#"
        -- the versions in force during a slice, of a page of workflows
        SELECT workflow_id AS "workflow_id!", revision AS "revision!", valid_from AS "valid_from!", cron, timezone,
               state AS "state!: State", starts_at, ends_at, ended_on
          FROM (SELECT *, lead(valid_from) OVER (PARTITION BY workflow_id ORDER BY valid_from) AS ended_on
                  FROM schedule_versions
                 WHERE workflow_id = ANY($1)) v
         WHERE valid_from < $3 AND (ended_on IS NULL OR ended_on > $2)
         ORDER BY workflow_id, valid_from
        "#,
        ids,
        slice.from,
        slice.to,
    )
    .fetch_all(tx)
    .await?;
    let mut versions = HashMap::<i64, Vec<Version>>::new();
    for row in rows {
        versions.entry(row.workflow_id).or_default().push(Version {
            revision: row.revision,
            valid_from: row.valid_from,
            ended_on: row.ended_on,
            // How it ended decides what becomes of a time, not whether it was owed.
            ended_by: row.ended_on.map(|_| EndedBy::Edit),
            cron: row.cron,
            timezone: row.timezone,
            state: row.state,
            starts_at: row.starts_at,
            ends_at: row.ends_at,
        });
    }
    Ok(versions)
}

pub(super) async fn rows(tx: &mut PgConnection, ids: &[i64], slice: Span) -> sqlx::Result<HashMap<i64, Vec<Row>>> {
    let found = sqlx::query!(
        r#"
        -- the ledger's rows in a slice, of a page of workflows
        SELECT workflow_id, scheduled_time, decision AS "decision: Decision", created_on < scheduled_time AS "is_early!"
          FROM occurrences
         WHERE workflow_id = ANY($1) AND scheduled_time >= $2 AND scheduled_time < $3
         ORDER BY workflow_id, scheduled_time
        "#,
        ids,
        slice.from,
        slice.to,
    )
    .fetch_all(tx)
    .await?;
    let mut rows = HashMap::<i64, Vec<Row>>::new();
    for row in found {
        let scheduled_time = row.scheduled_time;
        let row_of = Row { scheduled_time, decision: row.decision, is_early: row.is_early };
        rows.entry(row.workflow_id).or_default().push(row_of);
    }
    Ok(rows)
}
