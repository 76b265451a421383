//! Step 3 of 7: the read half of the outbox: which workflows are due, and which publisher processes them.
//!
//! The unit is the workflow, never the row. A workflow has one owner at a time, identified by `epoch`. However many
//! rows wait, the workflow is published once, in its current state.

pub(crate) mod deployment;
pub(crate) mod publishers;
pub(crate) mod workflows;

use std::collections::HashMap;
use std::time::Duration;

use db::{PgConnection, PgPool};
use schedule::WorkflowId;

use self::deployment::Generation;
use self::publishers::join_publishers;
use crate::failpoint::{Injector, Point};
use crate::scheduler::lease::{LEASE, Lease, Span};

/// If this many claims in a row were not settled, the workflow may be what kills the publisher.
const CRASHES: i32 = 2;

/// A claimed workflow.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) workflow_id: WorkflowId,
    /// The fence: every later statement about this claim names it.
    pub(crate) epoch: i64,
    /// Claims without a success, this one included.
    pub(crate) attempt: i32,
    /// Failures in a row before it.
    pub(crate) failures: u32,
    /// How many repairs had been requested when the claim began.
    pub(crate) repairs: i64,
    /// The newest outbox row that the claim covers, 0 = none.
    pub(crate) seen: i64,
    pub(crate) traceparent: Option<String>,
    /// `None` = unknown, so make a call; `Some("none")` = there is no schedule.
    pub(crate) spec_hash: Option<String>,
    pub(crate) schedule_name: Option<String>,
    pub(crate) verify: Verify,
}

/// Whether this claim is to read the schedule back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verify {
    /// `verify_at` had passed when the claim began, so no request signed before can still arrive.
    Due,
    NotDue,
}

/// Workflows that were claimed together, and their lease.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) claims: Vec<Claim>,
    pub(crate) lease: Lease,
    /// How many publishers have leases, this one included; `None` if the claim was empty.
    pub(crate) publishers: Option<u32>,
}

/// Which workflows a claim takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// All due workflows except the suspects.
    Usual,
    /// Workflows that were claimed twice in a row without an answer, or `CRONBOX_MAX_ATTEMPTS` times in total. Each of
    /// them may be what kills the publisher, so one is claimed at a time, after all others.
    Suspects,
}

/// Which publisher claims, and how many workflows.
#[derive(Clone, Debug)]
pub(crate) struct Claimant {
    pub(crate) owner: String,
    pub(crate) batch_size: u16,
    pub(crate) max_attempts: u16,
    /// The generation of this process; if it is older than the database's, nothing is claimed.
    pub(crate) generation: Generation,
}

/// Claims the workflows that have been due for longest; an empty batch means that none is due.
pub(crate) async fn claim_due_workflows(
    pool: &PgPool,
    claimant: &Claimant,
    choice: Choice,
    span: &Span,
    injector: &Injector,
) -> sqlx::Result<Batch> {
    // The clock is read before the claim is sent, so that this lease ends before the database's.
    let lease = Lease::new(span.now(), span);
    let mut tx = db::begin_transaction(pool).await?;
    injector.pass_point(Point::P1).await;
    injector.pass_point(Point::P2).await;
    let mut claims = lease_due(&mut tx, claimant, choice).await?;
    let mut publishers = None;
    if !claims.is_empty() {
        cover(&mut tx, &mut claims).await?;
        publishers = Some(join_publishers(&mut tx, &claimant.owner).await?);
    }
    injector.pass_point(Point::P3).await;
    tx.commit().await?;
    injector.pass_point(Point::P4).await;
    Ok(Batch { claims, lease, publishers })
}

/// Extends leases, named by workflow and epoch; returns the workflows whose lease was extended.
pub(crate) async fn renew_leases(pool: &PgPool, keys: &[(i64, i64)]) -> sqlx::Result<Vec<i64>> {
    let (ids, epochs): (Vec<i64>, Vec<i64>) = keys.iter().copied().unzip();
    sqlx::query_scalar!(
        r#"
        -- renew: only leases that have not expired, because another publisher may be taking over an expired one; and in
        -- order, without waiting, because an edit may lock several publications in another order
        WITH mine AS MATERIALIZED (
            SELECT p.workflow_id
              FROM publications AS p
              JOIN unnest($1::bigint[], $2::bigint[]) AS mine (workflow_id, epoch)
                ON p.workflow_id = mine.workflow_id AND p.epoch = mine.epoch
             WHERE p.lease_until > cronbox_now()
             ORDER BY p.workflow_id
               FOR UPDATE OF p SKIP LOCKED
        )
        UPDATE publications AS p
           SET lease_until = cronbox_now() + make_interval(secs => $3)
          FROM mine
         WHERE p.workflow_id = mine.workflow_id
        RETURNING p.workflow_id
        "#,
        &ids,
        &epochs,
        LEASE.as_secs_f64(),
    )
    .fetch_all(pool)
    .await
}

/// Makes workflows due that wait for the end of an outage that is over.
pub(crate) async fn end_backoffs(pool: &PgPool) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- release: skip rows that another publisher has locked, and lock in order, so that two releases cannot deadlock
        WITH waiting AS MATERIALIZED (
            SELECT workflow_id
              FROM publications
             WHERE due_at > cronbox_now() AND error_class IN ('transient', 'environment') AND lease_owner IS NULL
             ORDER BY workflow_id
               FOR UPDATE SKIP LOCKED
        )
        UPDATE publications AS p
           SET due_at = cronbox_now()
          FROM waiting
         WHERE p.workflow_id = waiting.workflow_id
        "#
    )
    .execute(pool)
    .await
    .map(drop)
}

/// Counts the workflows that are due, leased ones included.
pub(crate) async fn count_due(pool: &PgPool) -> sqlx::Result<u64> {
    let count = sqlx::query_scalar!(
        r#"
        -- count due: `due_at` stays set while leased, so this counts leased workflows, too
        SELECT COUNT(*) AS "count!" FROM publications WHERE due_at <= cronbox_now()
        "#
    )
    .fetch_one(pool)
    .await?;
    Ok(count.unsigned_abs())
}

/// Counts the workflows that are due or backed off.
pub(crate) async fn count_remaining(pool: &PgPool) -> sqlx::Result<u64> {
    let count = sqlx::query_scalar!(
        r#"
        -- count remaining: a verify pass or an end in the future is no backlog
        SELECT COUNT(*) AS "count!"
          FROM publications
         WHERE due_at IS NOT NULL
           AND (due_at <= cronbox_now() OR error_class IN ('transient', 'environment', 'unclassified'))
        "#
    )
    .fetch_one(pool)
    .await?;
    Ok(count.unsigned_abs())
}

/// Returns how long until the next workflow becomes due, `None` if none waits.
pub(crate) async fn next_due(pool: &PgPool) -> sqlx::Result<Option<Duration>> {
    let secs = sqlx::query_scalar!(
        r#"
        -- next due: only future publications; one that is due has a live lease, and the poll takes it when that ends
        SELECT EXTRACT(EPOCH FROM due_at - cronbox_now())::float8 AS "secs!"
          FROM publications
         WHERE due_at > cronbox_now()
         ORDER BY due_at
         LIMIT 1
        "#
    )
    .fetch_optional(pool)
    .await?;
    Ok(secs.map(|secs| Duration::try_from_secs_f64(secs.max(0.0)).unwrap_or(Duration::MAX)))
}

/// Returns how long until the next failed workflow is tried again, `None` if none waits.
///
/// A retry that became due after the last claim, or whose row was locked, is tried again after a second.
pub(crate) async fn next_retry(pool: &PgPool) -> sqlx::Result<Option<Duration>> {
    let secs = sqlx::query_scalar!(
        r#"
        -- next retry: a verify pass or an end in the future is no failure
        SELECT CASE WHEN due_at > cronbox_now() THEN EXTRACT(EPOCH FROM due_at - cronbox_now())::float8 ELSE 1 END AS "secs!"
          FROM publications
         WHERE due_at IS NOT NULL AND (due_at > cronbox_now() OR lease_until IS NULL)
           AND error_class IN ('transient', 'environment', 'unclassified')
         ORDER BY due_at
         LIMIT 1
        "#
    )
    .fetch_optional(pool)
    .await?;
    Ok(secs.map(|secs| Duration::try_from_secs_f64(secs.max(0.0)).unwrap_or(Duration::MAX)))
}

async fn lease_due(tx: &mut PgConnection, claimant: &Claimant, choice: Choice) -> sqlx::Result<Vec<Claim>> {
    let limit = match choice {
        Choice::Usual => i64::from(claimant.batch_size),
        Choice::Suspects => 1,
    };
    let rows = sqlx::query!(
        r#"
        -- claim: MATERIALIZED, because the planner may run an inlined LIMIT .. SKIP LOCKED once per
        -- row and take more than the limit. If the ledger is held during a drain, no row is claimed
        WITH due AS MATERIALIZED (
            SELECT workflow_id, lease_until IS NOT NULL AS is_takeover, verify_at
              FROM publications
             WHERE due_at <= cronbox_now()
               AND (lease_until IS NULL OR lease_until <= cronbox_now())
               AND (attempt_count >= $4 OR lease_until IS NOT NULL AND attempt_count >= $6) = $5
               AND NOT EXISTS (SELECT FROM config_generation WHERE (generation, template) > ($7, $8))
               AND cronbox_hold() IS NULL
             ORDER BY due_at
             LIMIT $3
               FOR UPDATE SKIP LOCKED
        )
        UPDATE publications AS p
           SET epoch = p.epoch + 1,
               lease_owner = $1,
               lease_until = cronbox_now() + make_interval(secs => $2),
               attempt_count = p.attempt_count + 1,
               -- a takeover: the last request of the former owner may have been applied, or may still arrive while its
               -- signature is valid; so this owner calls, and a verify pass checks again after that
               spec_hash = CASE WHEN due.is_takeover THEN NULL ELSE p.spec_hash END,
               verify_at = CASE WHEN due.is_takeover THEN GREATEST(p.verify_at, cronbox_now() + INTERVAL '16 minutes')
                                ELSE p.verify_at END
          FROM due
         WHERE p.workflow_id = due.workflow_id
        RETURNING p.workflow_id,
                  p.epoch,
                  p.attempt_count,
                  p.failures,
                  p.repairs,
                  p.spec_hash,
                  p.schedule_name,
                  COALESCE(due.verify_at <= cronbox_now() AND NOT due.is_takeover, FALSE) AS "is_verify_due!"
        "#,
        claimant.owner,
        LEASE.as_secs_f64(),
        limit,
        i32::from(claimant.max_attempts),
        choice == Choice::Suspects,
        CRASHES,
        claimant.generation.number,
        claimant.generation.template,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Claim {
            workflow_id: WorkflowId(row.workflow_id),
            epoch: row.epoch,
            attempt: row.attempt_count,
            failures: row.failures.unsigned_abs(),
            repairs: row.repairs,
            seen: 0,
            traceparent: None,
            spec_hash: row.spec_hash,
            schedule_name: row.schedule_name,
            verify: if row.is_verify_due { Verify::Due } else { Verify::NotDue },
        })
        .collect())
}

/// Records up to which outbox row each claim reaches.
async fn cover(tx: &mut PgConnection, claims: &mut [Claim]) -> sqlx::Result<()> {
    let ids: Vec<i64> = claims.iter().map(|claim| claim.workflow_id.0).collect();
    let newest = sqlx::query!(
        r#"
        -- cover: a later statement than the one that locked, so that it sees every row that earlier owners of the lock
        -- inserted
        SELECT claimed.workflow_id AS "workflow_id!", newest.id, newest.payload ->> 'traceparent' AS traceparent
          FROM unnest($1::bigint[]) AS claimed (workflow_id)
         CROSS JOIN LATERAL (
               SELECT id, payload
                 FROM outbox_events
                WHERE aggregate_id = claimed.workflow_id
                  AND processed_on IS NULL
                  AND failed_on IS NULL
                ORDER BY aggregate_id DESC, id DESC
                LIMIT 1
         ) AS newest
        "#,
        &ids,
    )
    .fetch_all(tx)
    .await?;
    let mut newest: HashMap<i64, _> = newest.into_iter().map(|row| (row.workflow_id, row)).collect();
    for claim in claims {
        if let Some(row) = newest.remove(&claim.workflow_id.0) {
            claim.seen = row.id;
            claim.traceparent = row.traceparent;
        }
    }
    Ok(())
}
