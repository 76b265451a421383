//! Step 4 of 7: settles successes: what EventBridge has now.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use db::PgConnection;
use serde::Serialize;
use sqlx::types::Json;

use crate::settle::settlement::{Outcome, Settlement};

/// A success, as parameters of the statements.
#[derive(Serialize)]
pub(super) struct Published<'a> {
    workflow_id: i64,
    seen: i64,
    attempt: i32,
    revision: i64,
    spec_hash: &'a str,
    was_known: bool,
    repairs: i64,
    schedule_name: Option<&'a str>,
    template: Option<i32>,
    changes_on: Option<DateTime<Utc>>,
    is_verified: bool,
    is_in_doubt: bool,
    is_superseded: bool,
}

/// How many outbox rows were marked, and of how many workflows.
pub(super) struct Marked {
    pub(super) rows: u64,
    pub(super) workflows: u64,
}

pub(super) fn published_params<'a>(settlement: &'a Settlement, superseded: &HashSet<i64>) -> Option<Published<'a>> {
    let Settlement { claim, outcome: Outcome::Applied(applied), changes_on, is_verified, .. } = settlement else {
        return None;
    };
    Some(Published {
        workflow_id: claim.workflow_id.0,
        seen: claim.seen,
        attempt: claim.attempt,
        revision: applied.revision.0,
        spec_hash: &applied.spec_hash,
        was_known: claim.spec_hash.is_some(),
        repairs: claim.repairs,
        schedule_name: applied.schedule_name.as_deref(),
        template: applied.template,
        changes_on: applied.schedule_name.as_ref().and(*changes_on),
        is_verified: *is_verified,
        is_in_doubt: settlement.is_in_doubt,
        is_superseded: superseded.contains(&claim.workflow_id.0),
    })
}

/// Settles successes, and marks the outbox rows that the claims cover; returns how many rows.
pub(super) async fn settle_published(tx: &mut PgConnection, published: &[Published<'_>]) -> sqlx::Result<Marked> {
    let marked = sqlx::query!(
        r#"
        -- settle published: one statement, because each costs a round trip; the clock is read once, because each call of
        -- its function costs as much as the search in an index
        WITH clock AS MATERIALIZED (
            SELECT cronbox_now() AS now
        ), s AS MATERIALIZED (
            SELECT *
              FROM jsonb_to_recordset($1) AS s (
                   workflow_id bigint, seen bigint, attempt integer, revision bigint, spec_hash text,
                   was_known boolean, repairs bigint, schedule_name text, template integer, changes_on timestamptz,
                   is_verified boolean, is_in_doubt boolean, is_superseded boolean)
        ), ids AS MATERIALIZED (
            -- a condition wherever publications are read, because some plans would read all of them otherwise
            SELECT array_agg(workflow_id) AS ids FROM s
        ), covered AS MATERIALIZED (
            -- all rows that the claim covers, however many edits they are. First by workflow, sorted, then by the place of
            -- the row, listed, so that no plan reads the complete table, whatever the statistics. A place is valid in this
            -- statement: settles and operators lock the publication before they change an open row
            SELECT open.place
              FROM s
             CROSS JOIN LATERAL (
                   SELECT ctid AS place
                     FROM outbox_events
                    WHERE aggregate_id = s.workflow_id
                      AND id <= s.seen
                      AND processed_on IS NULL
                      AND failed_on IS NULL
                    ORDER BY aggregate_id, id
             ) AS open
        ), marked AS (
            UPDATE outbox_events AS o
               SET processed_on = (SELECT now FROM clock),
                   attempt_count = s.attempt,
                   error_message = NULL
              FROM s
             WHERE o.aggregate_id = s.workflow_id
               AND o.ctid = ANY(ARRAY(SELECT place FROM covered))
               -- the partition of the open rows, out of which this moves the row
               AND o.processed_on IS NULL
            RETURNING o.aggregate_id
        ), settled AS (
            UPDATE publications AS p
               SET applied_revision = s.revision,
                   -- a repair that was requested during the call has made the state unknown, and this call does not
                   -- change that
                   spec_hash = CASE WHEN r.is_requested THEN NULL ELSE s.spec_hash END,
                   refused_hash = NULL,
                   failures = 0,
                   superseded = 0,
                   -- in the lane of the edits again, unless a verify pass comes next: after an outage there may be one of
                   -- each workflow, all in the same minute
                   is_repair = NOT (s.is_superseded OR r.is_requested)
                               AND r.verify_at IS NOT NULL
                               AND (s.changes_on IS NULL OR r.verify_at <= s.changes_on),
                   schedule_name = s.schedule_name,
                   template = s.template,
                   -- the permission for a removal ends here: if the row vanishes again, the orphan guard decides again.
                   -- A delete event that arrived during the call remains
                   removal_revision = CASE WHEN s.schedule_name IS NULL OR s.is_superseded THEN p.removal_revision END,
                   applied_on = (SELECT now FROM clock),
                   attempt_count = 0,
                   error_class = NULL,
                   last_error = NULL,
                   drift = NULL,
                   lease_owner = NULL,
                   lease_until = NULL,
                   verify_at = r.verify_at,
                   due_at = CASE
                       WHEN s.is_superseded OR r.is_requested THEN (SELECT now FROM clock)
                       ELSE LEAST(
                           -- not in the past, where claims do not read
                           CASE WHEN r.verify_at IS NOT NULL THEN GREATEST(r.verify_at, (SELECT now FROM clock)) END,
                           -- not before a minute from now: the two clocks may disagree about the change
                           CASE WHEN s.changes_on IS NOT NULL
                                THEN GREATEST(s.changes_on, (SELECT now FROM clock)) + INTERVAL '60 seconds' END
                       )
                   END
              FROM s
             CROSS JOIN LATERAL (
                   -- an app of an older version does not count the repairs that it requests
                   SELECT before.repairs <> s.repairs OR (s.was_known AND before.spec_hash IS NULL) AS is_requested,
                          CASE WHEN s.is_in_doubt
                               THEN GREATEST(before.verify_at, (SELECT now FROM clock) + verify_wait(before.workflow_id))
                               WHEN s.is_verified THEN NULL
                               ELSE before.verify_at END AS verify_at
                     FROM publications AS before
                    WHERE before.workflow_id = s.workflow_id
                      AND before.workflow_id = ANY((SELECT ids FROM ids)::bigint[])
             ) AS r
             WHERE p.workflow_id = s.workflow_id
               AND p.workflow_id = ANY((SELECT ids FROM ids)::bigint[])
        ), announced AS (
            -- only while a client of the app follows the events
            INSERT INTO events (kind, what, team_id, workflow_id, revision)
            SELECT 'sync', 'synced', w.team_id, s.workflow_id, s.revision
              FROM s LEFT JOIN workflows AS w ON w.id = s.workflow_id
             WHERE EXISTS (SELECT FROM event_listeners WHERE live_until > clock_timestamp())
        )
        SELECT COUNT(*) AS "rows!", COUNT(DISTINCT aggregate_id) AS "workflows!" FROM marked
        "#,
        Json(published) as _,
    )
    .fetch_one(tx)
    .await?;
    Ok(Marked { rows: marked.rows.unsigned_abs(), workflows: marked.workflows.unsigned_abs() })
}
