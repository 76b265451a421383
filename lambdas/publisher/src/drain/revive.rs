//! Step 3 of 7: publishes failed workflows again that now require another schedule.
//!
//! A failure is final for the schedule that was refused. An edit enqueues its workflow. But when a deployment corrects
//! an ARN, a version publishes another shape, or a timezone becomes known, no edit happens, so this module enqueues the
//! workflow. A workflow that failed before refused hashes were stored is tried once.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use db::PgPool;

use crate::claim::workflows::read_workflows;
use crate::converge::desired::{desired_schedule, wanted_hash};
use crate::database_error::in_words;
use crate::publisher::Publisher;
use crate::scheduler::lease::Span;

/// How often a process checks the failed workflows: at its first drain, and then as often as it sweeps.
const INTERVAL: Duration = Duration::from_secs(15 * 60);
/// How many workflows one statement reads.
const PAGE: i64 = 500;

impl Publisher {
    /// Enqueues the failed workflows that require another schedule than the refused one.
    ///
    /// # Errors
    /// Fails if the database cannot be reached or refuses the statement.
    pub(crate) async fn revive_failed(&self, span: &Span) -> anyhow::Result<()> {
        if !span.may_claim() || !self.revive_check().is_due(INTERVAL, span.now()) {
            return Ok(());
        }
        let (mut after, now) = (0, self.clock().now());
        while span.may_claim() {
            let failed = list_failed(self.pool(), after).await.map_err(in_words)?;
            let Some(last) = failed.last() else { return Ok(()) };
            after = last.workflow_id;
            let ids: Vec<i64> = failed.iter().map(|failed| failed.workflow_id).collect();
            let refused: HashMap<i64, Option<String>> =
                failed.into_iter().map(|failed| (failed.workflow_id, failed.refused_hash)).collect();
            let wanted = read_workflows(self.pool(), &ids).await?;
            let changed = wanted.iter().filter(|workflow| {
                let wanted = wanted_hash(&desired_schedule(workflow, None, self.config(), now));
                refused.get(&workflow.id.0).is_some_and(|refused| refused.as_ref() != Some(&wanted))
            });
            let changed: Vec<i64> = changed.map(|workflow| workflow.id.0).collect();
            if !changed.is_empty() {
                let revived = enqueue_revived(self.pool(), &changed, now).await?;
                tracing::info!(
                    revived,
                    "failed workflows enqueued again: their schedules differ from those that EventBridge refused"
                );
            }
        }
        Ok(())
    }
}

/// A workflow that failed permanently.
struct Failed {
    workflow_id: i64,
    refused_hash: Option<String>,
}

async fn list_failed(pool: &PgPool, after: i64) -> sqlx::Result<Vec<Failed>> {
    sqlx::query_as!(
        Failed,
        r#"
        -- list failed: without those that an operator has discarded since
        SELECT p.workflow_id, p.refused_hash
          FROM publications AS p
         WHERE p.error_class = 'permanent'
           AND p.workflow_id > $1
           AND p.lease_owner IS NULL
           AND (EXISTS (SELECT FROM outbox_events AS o
                         WHERE o.aggregate_id = p.workflow_id AND o.failed_on IS NOT NULL AND o.processed_on IS NULL)
                OR NOT EXISTS (SELECT FROM outbox_events AS o
                                WHERE o.aggregate_id = p.workflow_id AND o.failed_on IS NOT NULL))
         ORDER BY p.workflow_id
         LIMIT $2
        "#,
        after,
        PAGE,
    )
    .fetch_all(pool)
    .await
}

async fn enqueue_revived(pool: &PgPool, ids: &[i64], now: DateTime<Utc>) -> sqlx::Result<u64> {
    let enqueued = sqlx::query!(
        r#"
        -- enqueue revived: without workflows that were edited or claimed since
        WITH failed AS MATERIALIZED (
            SELECT workflow_id
              FROM publications
             WHERE workflow_id = ANY($1)
               AND error_class = 'permanent'
               AND lease_owner IS NULL
             ORDER BY workflow_id
               FOR UPDATE SKIP LOCKED
        ), revived AS (
            UPDATE publications AS p
               SET spec_hash = NULL,
                   due_at = cronbox_now(),
                   is_repair = TRUE,
                   attempt_count = 0,
                   failures = 0,
                   error_class = NULL
              FROM failed
             WHERE p.workflow_id = failed.workflow_id
            RETURNING p.workflow_id, p.desired_revision
        )
        INSERT INTO outbox_events (aggregate_id, op, payload, created_on)
        SELECT workflow_id, 'upsert', jsonb_build_object('revision', desired_revision, 'revived', TRUE), $2
          FROM revived
        "#,
        ids,
        now,
    )
    .execute(pool)
    .await?;
    Ok(enqueued.rows_affected())
}
