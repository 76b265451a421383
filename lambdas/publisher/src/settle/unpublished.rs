//! Step 4 of 7: settles what was not published: backed off, failed permanently, or never called.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use db::PgConnection;
use serde::Serialize;
use sqlx::types::Json;

use crate::scheduler::fault::Effect;
use crate::settle::settlement::{ErrorClass, Outcome, Settlement};

/// After this many failures in a row that an edit superseded, an edit does not end the backoff. The statement that enqueues
/// an edit has the same number.
const SUPERSEDED_AT_ONCE: i32 = 2;
/// The failures are counted up to here.
const MOST_SUPERSEDED: i32 = 30;
/// The longest wait of a workflow that is edited in a loop, so that its last edit is published soon after an outage.
const LONGEST_WAIT_SECS: f64 = 30.0;

/// An outcome other than a success, as parameters of the statements.
#[derive(Serialize)]
pub(super) struct Unpublished<'a> {
    workflow_id: i64,
    seen: i64,
    attempt: i32,
    /// Whether the attempt does not count, because it says nothing about the workflow.
    is_attempt_returned: bool,
    error_class: Option<&'static str>,
    refused_hash: Option<&'a str>,
    message: Option<&'a str>,
    wait_secs: Option<f64>,
    changes_on: Option<DateTime<Utc>>,
    is_verified: bool,
    is_unknown: bool,
    is_in_doubt: bool,
    /// An edit is newer than the claim.
    is_superseded: bool,
    /// An edit or the request of a repair is newer than the claim, so that the publisher calls again at once: a refusal says
    /// nothing about what is requested now.
    is_overtaken: bool,
}

pub(super) fn unpublished_params<'a>(
    settlement: &'a Settlement,
    superseded: &HashSet<i64>,
    requested: &HashSet<i64>,
) -> Option<Unpublished<'a>> {
    let Settlement { claim, outcome, changes_on, is_verified, is_in_doubt, refused_hash } = settlement;
    let (error_class, message, wait, effect) = match outcome {
        Outcome::Applied(_) => return None,
        Outcome::NotCalled => (None, None, None, Effect::None),
        Outcome::Retry(setback) => {
            (Some(setback.class), Some(setback.message.as_str()), Some(setback.wait), setback.effect)
        }
        Outcome::Failed { message, effect } => (Some(ErrorClass::Permanent), Some(message.as_str()), None, *effect),
    };
    let is_in_doubt = *is_in_doubt || effect == Effect::Unknown;
    let is_superseded = superseded.contains(&claim.workflow_id.0);
    Some(Unpublished {
        workflow_id: claim.workflow_id.0,
        seen: claim.seen,
        attempt: claim.attempt,
        is_attempt_returned: matches!(error_class, None | Some(ErrorClass::Transient | ErrorClass::Environment)),
        error_class: error_class.map(ErrorClass::as_str),
        refused_hash: refused_hash.as_deref(),
        message,
        wait_secs: wait.map(|wait| wait.as_secs_f64()),
        changes_on: *changes_on,
        is_verified: *is_verified,
        // A verify pass whose call failed has seen another schedule than the last known one.
        is_unknown: is_in_doubt || *is_verified,
        is_in_doubt,
        is_superseded,
        is_overtaken: is_superseded || requested.contains(&claim.workflow_id.0),
    })
}

pub(super) async fn mirror_errors(tx: &mut PgConnection, unpublished: &[Unpublished<'_>]) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- mirror errors: only in the newest row that the claim covers, because a hot workflow may have thousands of open
        -- rows and fails often; a permanent failure is of all of them. Rows that a newer edit or repair has overtaken do not
        -- fail, because its call settles them
        WITH covered AS MATERIALIZED (
            SELECT open.id, s.*
              FROM jsonb_to_recordset($1) AS s (
                   workflow_id bigint, seen bigint, attempt integer, is_attempt_returned boolean,
                   error_class text, message text, is_overtaken boolean)
             CROSS JOIN LATERAL (
                   SELECT id
                     FROM outbox_events
                    WHERE aggregate_id = s.workflow_id
                      AND id <= s.seen
                      AND processed_on IS NULL
                      AND failed_on IS NULL
                    ORDER BY aggregate_id DESC, id DESC
                    LIMIT CASE WHEN s.error_class = 'permanent' AND NOT s.is_overtaken THEN NULL ELSE 1 END
             ) AS open
             WHERE s.message IS NOT NULL
        )
        UPDATE outbox_events AS o
           SET attempt_count = CASE WHEN c.is_attempt_returned THEN c.attempt - 1 ELSE c.attempt END,
               error_message = c.message,
               failed_on = CASE WHEN c.error_class = 'permanent' AND NOT c.is_overtaken THEN cronbox_now() END
          FROM covered AS c
         WHERE o.id = c.id
           AND o.id = ANY(ARRAY(SELECT id FROM covered))
           AND o.processed_on IS NULL
        "#,
        Json(unpublished) as _,
    )
    .execute(tx)
    .await
    .map(drop)
}

pub(super) async fn settle_unpublished(tx: &mut PgConnection, unpublished: &[Unpublished<'_>]) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- settle unpublished: an edit or a repair that was requested during the call has reset attempts and class, which this
        -- keeps. A permanent failure is an event, while a client of the app follows the events
        WITH announced AS (
            INSERT INTO events (kind, what, team_id, workflow_id)
            SELECT 'sync', 'failed', w.team_id, s.workflow_id
              FROM jsonb_to_recordset($1) AS s (workflow_id bigint, error_class text, is_overtaken boolean)
              LEFT JOIN workflows AS w ON w.id = s.workflow_id
             WHERE EXISTS (SELECT FROM event_listeners WHERE live_until > clock_timestamp())
               AND s.error_class = 'permanent' AND NOT s.is_overtaken
        )
        UPDATE publications AS p
           SET attempt_count = CASE -- what the environment refuses says nothing about earlier attempts either
                                    WHEN s.error_class = 'environment' THEN 0
                                    WHEN s.is_attempt_returned THEN GREATEST(p.attempt_count - 1, 0)
                                    ELSE p.attempt_count END,
               superseded = CASE WHEN s.error_class IS NULL THEN p.superseded
                                 WHEN s.is_superseded THEN LEAST(p.superseded + 1, $3)
                                 ELSE 0 END,
               failures = CASE WHEN s.is_overtaken OR s.error_class IS NULL THEN p.failures
                               WHEN s.error_class = 'permanent' THEN 0
                               ELSE p.failures + 1 END,
               refused_hash = COALESCE(s.refused_hash, p.refused_hash),
               error_class = CASE WHEN s.is_overtaken THEN p.error_class ELSE COALESCE(s.error_class, p.error_class) END,
               last_error = COALESCE(s.message, p.last_error),
               spec_hash = CASE WHEN s.is_unknown THEN NULL ELSE p.spec_hash END,
               lease_owner = NULL,
               lease_until = NULL,
               verify_at = v.verify_at,
               due_at = CASE
                   -- a client that edits in a loop during an outage gets two attempts at once; then it waits, at first 2 s
                   WHEN s.is_superseded AND p.superseded >= $2 THEN
                       cronbox_now() + make_interval(secs => LEAST(2 ^ (p.superseded - $2 + 1), $4::float8))
                   WHEN s.is_overtaken THEN cronbox_now()
                   -- not called: the workflow stays due as before
                   WHEN s.error_class IS NULL THEN p.due_at
                   ELSE LEAST(
                       cronbox_now() + make_interval(secs => s.wait_secs),
                       -- a verify pass that was due and could not be done waits until the next attempt
                       CASE WHEN v.verify_at > cronbox_now() THEN v.verify_at END,
                       CASE WHEN s.changes_on IS NOT NULL
                            THEN GREATEST(s.changes_on, cronbox_now()) + INTERVAL '60 seconds' END
                   )
               END
          FROM jsonb_to_recordset($1) AS s (
               workflow_id bigint, is_attempt_returned boolean, error_class text, refused_hash text, message text,
               wait_secs double precision, changes_on timestamptz, is_verified boolean, is_unknown boolean,
               is_in_doubt boolean, is_superseded boolean, is_overtaken boolean)
         CROSS JOIN LATERAL (
               SELECT before.workflow_id,
                      -- never made earlier: a request that was signed just now may arrive within the next 15 minutes
                      CASE WHEN s.is_in_doubt THEN GREATEST(before.verify_at, cronbox_now() + verify_wait(before.workflow_id))
                           WHEN s.is_verified THEN NULL
                           ELSE before.verify_at END AS verify_at
                 FROM publications AS before
                WHERE before.workflow_id = s.workflow_id
         ) AS v
         WHERE p.workflow_id = s.workflow_id
        "#,
        Json(unpublished) as _,
        SUPERSEDED_AT_ONCE,
        MOST_SUPERSEDED,
        LONGEST_WAIT_SECS,
    )
    .execute(tx)
    .await
    .map(drop)
}
