//! Step 4 of 7: writes down what became of a claim, fenced by its epoch.
//!
//! One short transaction: the first statement locks the publications that are still ours; later
//! ones, which see every row inserted under the lock before, mark the outbox rows and set when the
//! publisher is to look again.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};

use crate::fault::Effect;
use crate::inject::{Injector, Point};
use crate::report::Report;
use crate::settlement::{ErrorClass, Outcome, Settlement, count};

/// A success, as the statements take it.
#[derive(Serialize)]
struct Published<'a> {
    workflow_id: i64,
    seen: i64,
    attempt: i32,
    revision: i64,
    spec_hash: &'a str,
    was_known: bool,
    schedule_name: Option<&'a str>,
    template: Option<i32>,
    ends_at: Option<DateTime<Utc>>,
    is_verified: bool,
    is_superseded: bool,
}

/// Anything else, as the statements take it.
#[derive(Serialize)]
struct Unpublished<'a> {
    workflow_id: i64,
    seen: i64,
    attempt: i32,
    /// Given back, because this attempt says nothing about the workflow.
    is_attempt_returned: bool,
    error_class: Option<&'static str>,
    message: Option<&'a str>,
    wait_secs: Option<f64>,
    ends_at: Option<DateTime<Utc>>,
    is_verified: bool,
    is_unknown: bool,
    is_in_doubt: bool,
    is_superseded: bool,
}

/// Outbox rows marked, and of how many workflows.
struct Marked {
    rows: u64,
    workflows: u64,
}

/// Settles in one transaction all that is still ours, and counts it.
///
/// `waiting` is whether to wait for publications that an open transaction holds, or to skip them.
pub(crate) async fn settle(
    pool: &PgPool,
    settlements: &[Settlement],
    waiting: Waiting,
    injector: &Injector,
) -> sqlx::Result<(HashSet<i64>, Report)> {
    let mut tx = db::begin(pool).await?;
    let locked = match waiting {
        Waiting::Skip => lock_free(&mut tx, settlements).await?,
        Waiting::Wait => lock(&mut tx, settlements).await?,
    };
    let mine = || settlements.iter().filter(|settlement| locked.contains(&settlement.claim.workflow_id.0));
    let superseded = superseded(&mut tx, mine()).await?;
    let published: Vec<_> = mine().filter_map(|settlement| published(settlement, &superseded)).collect();
    let unpublished: Vec<_> = mine().filter_map(|settlement| unpublished(settlement, &superseded)).collect();
    let mut report = count(mine());
    if !published.is_empty() {
        let marked = mark_processed(&mut tx, &published).await?;
        report.processed = marked.rows;
        report.coalesced = marked.rows - marked.workflows;
        settle_published(&mut tx, &published).await?;
    }
    if !unpublished.is_empty() {
        mirror_errors(&mut tx, &unpublished).await?;
        settle_unpublished(&mut tx, &unpublished).await?;
    }
    injector.at(Point::P9).await;
    tx.commit().await?;
    injector.at(Point::P10).await;
    Ok((locked, report))
}

/// What to do about a publication that an open edit holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Leave it out, so that one open edit holds up no other workflow.
    Skip,
    /// Wait for the edit to end.
    Wait,
}

/// Locks what is still ours, in order, so that two settlers cannot block each other.
async fn lock(tx: &mut PgConnection, settlements: &[Settlement]) -> sqlx::Result<HashSet<i64>> {
    let (ids, epochs) = keys(settlements);
    let locked = sqlx::query_scalar!(
        r#"
        -- lock: by epoch, so that an owner who was taken over changes nothing; and only while the
        -- lease stands, so that a settle whose commit went unanswered is not done twice
        SELECT p.workflow_id
          FROM publications AS p
          JOIN unnest($1::bigint[], $2::bigint[]) AS mine (workflow_id, epoch)
            ON p.workflow_id = mine.workflow_id AND p.epoch = mine.epoch
         WHERE p.lease_owner IS NOT NULL
         ORDER BY p.workflow_id
           FOR UPDATE OF p
        "#,
        &ids,
        &epochs,
    )
    .fetch_all(tx)
    .await?;
    Ok(locked.into_iter().collect())
}

/// As [`lock`], without those that somebody else holds at this moment.
async fn lock_free(tx: &mut PgConnection, settlements: &[Settlement]) -> sqlx::Result<HashSet<i64>> {
    let (ids, epochs) = keys(settlements);
    let locked = sqlx::query_scalar!(
        r#"
        -- lock free: an edit that is held open holds up its own workflow alone
        SELECT p.workflow_id
          FROM publications AS p
          JOIN unnest($1::bigint[], $2::bigint[]) AS mine (workflow_id, epoch)
            ON p.workflow_id = mine.workflow_id AND p.epoch = mine.epoch
         WHERE p.lease_owner IS NOT NULL
         ORDER BY p.workflow_id
           FOR UPDATE OF p SKIP LOCKED
        "#,
        &ids,
        &epochs,
    )
    .fetch_all(tx)
    .await?;
    Ok(locked.into_iter().collect())
}

/// Which of them were edited after the claim had looked.
async fn superseded<'a>(
    tx: &mut PgConnection,
    settlements: impl Iterator<Item = &'a Settlement>,
) -> sqlx::Result<HashSet<i64>> {
    let (ids, seen): (Vec<i64>, Vec<i64>) =
        settlements.map(|settlement| (settlement.claim.workflow_id.0, settlement.claim.seen)).unzip();
    let newer = sqlx::query_scalar!(
        r#"
        -- superseded: later than the lock, so that an edit that we waited for is seen
        SELECT mine.workflow_id AS "workflow_id!"
          FROM unnest($1::bigint[], $2::bigint[]) AS mine (workflow_id, seen)
         WHERE EXISTS (
               SELECT FROM outbox_events AS o
                WHERE o.aggregate_id = mine.workflow_id
                  AND o.id > mine.seen
                  AND o.processed_on IS NULL
                  AND o.failed_on IS NULL
         )
        "#,
        &ids,
        &seen,
    )
    .fetch_all(tx)
    .await?;
    Ok(newer.into_iter().collect())
}

async fn mark_processed(tx: &mut PgConnection, published: &[Published<'_>]) -> sqlx::Result<Marked> {
    let marked = sqlx::query!(
        r#"
        -- mark processed: all that the claim covered, however many edits those were
        WITH marked AS (
            UPDATE outbox_events AS o
               SET processed_on = cronbox_now(),
                   attempt_count = s.attempt,
                   error_message = NULL
              FROM jsonb_to_recordset($1) AS s (workflow_id bigint, seen bigint, attempt integer)
             WHERE o.aggregate_id = s.workflow_id
               AND o.id <= s.seen
               AND o.processed_on IS NULL
               AND o.failed_on IS NULL
            RETURNING o.aggregate_id
        )
        SELECT COUNT(*) AS "rows!", COUNT(DISTINCT aggregate_id) AS "workflows!" FROM marked
        "#,
        Json(published) as _,
    )
    .fetch_one(tx)
    .await?;
    Ok(Marked { rows: marked.rows.unsigned_abs(), workflows: marked.workflows.unsigned_abs() })
}

async fn settle_published(tx: &mut PgConnection, published: &[Published<'_>]) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- settle published
        UPDATE publications AS p
           SET applied_revision = s.revision,
               -- a repair that was asked for meanwhile has made it unknown, and unknown it stays
               spec_hash = CASE WHEN s.was_known AND p.spec_hash IS NULL THEN NULL ELSE s.spec_hash END,
               schedule_name = s.schedule_name,
               template = s.template,
               applied_on = cronbox_now(),
               attempt_count = 0,
               error_class = NULL,
               last_error = NULL,
               drift = NULL,
               lease_owner = NULL,
               lease_until = NULL,
               verify_at = CASE WHEN s.is_verified THEN NULL ELSE p.verify_at END,
               due_at = CASE
                   WHEN s.is_superseded THEN cronbox_now()
                   ELSE LEAST(
                       CASE WHEN s.is_verified THEN NULL ELSE p.verify_at END,
                       -- not before a minute from now: the two clocks may disagree about the end
                       CASE WHEN s.ends_at IS NOT NULL
                            THEN GREATEST(s.ends_at, cronbox_now()) + INTERVAL '60 seconds' END
                   )
               END
          FROM jsonb_to_recordset($1) AS s (
               workflow_id bigint, revision bigint, spec_hash text, was_known boolean, schedule_name text,
               template integer, ends_at timestamptz, is_verified boolean, is_superseded boolean)
         WHERE p.workflow_id = s.workflow_id
        "#,
        Json(published) as _,
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn mirror_errors(tx: &mut PgConnection, unpublished: &[Unpublished<'_>]) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- mirror errors: rows that a newer edit has superseded are not given up, that edit settles them
        UPDATE outbox_events AS o
           SET attempt_count = CASE WHEN s.is_attempt_returned THEN s.attempt - 1 ELSE s.attempt END,
               error_message = s.message,
               failed_on = CASE WHEN s.error_class = 'permanent' AND NOT s.is_superseded THEN cronbox_now() END
          FROM jsonb_to_recordset($1) AS s (
               workflow_id bigint, seen bigint, attempt integer, is_attempt_returned boolean,
               error_class text, message text, is_superseded boolean)
         WHERE s.message IS NOT NULL
           AND o.aggregate_id = s.workflow_id
           AND o.id <= s.seen
           AND o.processed_on IS NULL
           AND o.failed_on IS NULL
        "#,
        Json(unpublished) as _,
    )
    .execute(tx)
    .await
    .map(drop)
}

async fn settle_unpublished(tx: &mut PgConnection, unpublished: &[Unpublished<'_>]) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- settle unpublished: an edit that came meanwhile has reset attempts and class; that stands
        UPDATE publications AS p
           SET attempt_count = CASE WHEN s.is_attempt_returned THEN GREATEST(p.attempt_count - 1, 0)
                                    ELSE p.attempt_count END,
               error_class = CASE WHEN s.is_superseded THEN p.error_class ELSE COALESCE(s.error_class, p.error_class) END,
               last_error = COALESCE(s.message, p.last_error),
               spec_hash = CASE WHEN s.is_unknown THEN NULL ELSE p.spec_hash END,
               lease_owner = NULL,
               lease_until = NULL,
               verify_at = v.verify_at,
               due_at = CASE
                   WHEN s.is_superseded THEN cronbox_now()
                   -- not called: as due as it was
                   WHEN s.error_class IS NULL THEN p.due_at
                   ELSE LEAST(
                       cronbox_now() + make_interval(secs => s.wait_secs),
                       -- a verify pass that could not be done waits with the rest
                       CASE WHEN v.verify_at > cronbox_now() THEN v.verify_at END,
                       CASE WHEN s.ends_at IS NOT NULL
                            THEN GREATEST(s.ends_at, cronbox_now()) + INTERVAL '60 seconds' END
                   )
               END
          FROM jsonb_to_recordset($1) AS s (
               workflow_id bigint, is_attempt_returned boolean, error_class text, message text,
               wait_secs double precision, ends_at timestamptz, is_verified boolean, is_unknown boolean,
               is_in_doubt boolean, is_superseded boolean)
         CROSS JOIN LATERAL (
               SELECT before.workflow_id,
                      -- never shortened: a request signed just now may arrive for another quarter of an hour
                      CASE WHEN s.is_in_doubt THEN GREATEST(before.verify_at, cronbox_now() + INTERVAL '16 minutes')
                           WHEN s.is_verified THEN NULL
                           ELSE before.verify_at END AS verify_at
                 FROM publications AS before
                WHERE before.workflow_id = s.workflow_id
         ) AS v
         WHERE p.workflow_id = s.workflow_id
        "#,
        Json(unpublished) as _,
    )
    .execute(tx)
    .await
    .map(drop)
}

fn published<'a>(settlement: &'a Settlement, superseded: &HashSet<i64>) -> Option<Published<'a>> {
    let Settlement { claim, outcome: Outcome::Applied(applied), ends_at, is_verified } = settlement else {
        return None;
    };
    Some(Published {
        workflow_id: claim.workflow_id.0,
        seen: claim.seen,
        attempt: claim.attempt,
        revision: applied.revision.0,
        spec_hash: &applied.spec_hash,
        was_known: claim.spec_hash.is_some(),
        schedule_name: applied.schedule_name.as_deref(),
        template: applied.template,
        ends_at: applied.schedule_name.as_ref().and(*ends_at),
        is_verified: *is_verified,
        is_superseded: superseded.contains(&claim.workflow_id.0),
    })
}

fn unpublished<'a>(settlement: &'a Settlement, superseded: &HashSet<i64>) -> Option<Unpublished<'a>> {
    let Settlement { claim, outcome, ends_at, is_verified } = settlement;
    let (error_class, message, wait, effect) = match outcome {
        Outcome::Applied(_) => return None,
        Outcome::NotCalled => (None, None, None, Effect::None),
        Outcome::Retry(setback) => {
            (Some(setback.class), Some(setback.message.as_str()), Some(setback.wait), setback.effect)
        }
        Outcome::Failed { message, effect } => (Some(ErrorClass::Permanent), Some(message.as_str()), None, *effect),
    };
    let is_in_doubt = effect == Effect::Unknown;
    Some(Unpublished {
        workflow_id: claim.workflow_id.0,
        seen: claim.seen,
        attempt: claim.attempt,
        is_attempt_returned: matches!(error_class, None | Some(ErrorClass::Transient | ErrorClass::Environment)),
        error_class: error_class.map(ErrorClass::as_str),
        message,
        wait_secs: wait.map(|wait| wait.as_secs_f64()),
        ends_at: *ends_at,
        is_verified: *is_verified,
        // A verify pass that ended in a call that failed has seen something else than was believed.
        is_unknown: is_in_doubt || *is_verified,
        is_in_doubt,
        is_superseded: superseded.contains(&claim.workflow_id.0),
    })
}

fn keys(settlements: &[Settlement]) -> (Vec<i64>, Vec<i64>) {
    settlements.iter().map(|settlement| (settlement.claim.workflow_id.0, settlement.claim.epoch)).unzip()
}
