//! Step 3 of 7: the read half of the outbox: which workflows are due, and which publisher processes them.
//!
//! The unit is the workflow, never the row. A workflow has one owner at a time, identified by `epoch`. However many
//! rows wait, the workflow is published once, in its current state.

mod by_team;
pub(crate) mod deployment;
pub(crate) mod low_water;
pub(crate) mod publishers;
pub(crate) mod workflows;

use std::time::Duration;

use db::{PgConnection, PgPool};
use schedule::WorkflowId;

use self::by_team::{Demand, choose_or_none};
use self::deployment::Generation;
use self::low_water::{LowWater, Marks};
use crate::failpoint::{Injector, Point};
use crate::scheduler::lease::{LEASE, Lease, Span};

/// How far the count of what remains goes: a larger backlog is not worth a longer statement.
const MOST_COUNTED: i64 = 100_000;
/// How many workflows one statement releases from their backoff.
const RELEASED_AT_ONCE: i64 = 1000;
/// A claim in this many takes repairs first, so that a constant stream of edits leaves them a tenth. It is one of those
/// that take edits by age, so that it replaces none by team.
const REPAIRS_FIRST_IN: u32 = 10;
/// While more edits are due than a batch, a claim in this many takes them team by team; the others take the oldest, so
/// that no edit waits without end.
const BY_TEAM_IN: u32 = 2;

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
    pub(crate) lane: Lane,
}

/// Why a workflow is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// An edit, a retry, or a change of its own, for example its end.
    Edit,
    /// A sweep, a rollout, a revival or a verify pass; these wait behind edits.
    Repair,
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

/// The order in which a claim takes edits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Those that have been due for longest.
    Age,
    /// Team by team, and the rest of the batch by age.
    Team,
}

/// What one claim takes: which workflows, how many repairs, and from which lane first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) choice: Choice,
    /// How many repairs it may take.
    pub(crate) repairs: usize,
    /// The lane from which it takes first; what is left of the batch is for the other one.
    pub(crate) first: Lane,
    /// In which order it takes edits.
    pub(crate) order: Order,
}

impl Wanted {
    /// What the claim with this number takes, the first being 0. `was_full` says that the claim before returned a full
    /// batch: otherwise one claim takes all that is due, and the order does not matter.
    pub(crate) fn of_claim(number: u32, choice: Choice, repairs: usize, was_full: bool) -> Wanted {
        let is_for_repairs = number % REPAIRS_FIRST_IN == REPAIRS_FIRST_IN - BY_TEAM_IN;
        let first = if is_for_repairs { Lane::Repair } else { Lane::Edit };
        let is_by_team =
            was_full && first == Lane::Edit && choice == Choice::Usual && number % BY_TEAM_IN == BY_TEAM_IN - 1;
        Wanted { choice, repairs, first, order: if is_by_team { Order::Team } else { Order::Age } }
    }
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

impl Claimant {
    /// What a claim by team chooses.
    fn demand(&self) -> Demand {
        let (edits, max_attempts) = (i64::from(self.batch_size), i32::from(self.max_attempts));
        Demand { edits, max_attempts, crashes: CRASHES }
    }
}

/// Claims due workflows, edits before repairs, those that have been due for longest first, or edits team by team; an empty
/// batch means that none is due.
pub(crate) async fn claim_due_workflows(
    pool: &PgPool,
    claimant: &Claimant,
    wanted: Wanted,
    low_water: &LowWater,
    span: &Span,
    injector: &Injector,
) -> sqlx::Result<Batch> {
    let marks = low_water.move_marks(pool, span.now()).await?;
    let chosen = match wanted.order {
        Order::Age => Vec::new(),
        Order::Team => choose_or_none(pool, claimant.demand(), marks).await,
    };
    // The clock is read before the claim is sent, so that this lease ends before the database's.
    let lease = Lease::new(span.now(), span);
    let mut tx = db::begin_transaction(pool).await?;
    injector.pass_point(Point::P1).await;
    injector.pass_point(Point::P2).await;
    let mut claims = lease_due(&mut tx, claimant, wanted, marks, &chosen).await?;
    let mut publishers = None;
    if !claims.is_empty() {
        publishers = Some(cover(&mut tx, &mut claims, &claimant.owner).await?);
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

/// The release of the workflows that wait for the end of an outage that is over, a batch at a time.
///
/// They become due one after the other, at the rate at which they can be published, so that an edit of the meantime
/// waits behind few of them. What would be due earlier by its own backoff is left as it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BackoffRelease {
    per_sec: f64,
    /// How many seconds from now the next batch begins to be due.
    from_secs: f64,
}

impl BackoffRelease {
    /// Begins to release at this rate per second.
    pub(crate) fn new(per_sec: u32) -> BackoffRelease {
        BackoffRelease { per_sec: f64::from(per_sec.max(1)), from_secs: 0.0 }
    }

    /// Releases the next batch; returns how to continue, `None` = no other workflow waits for longer.
    pub(crate) async fn release_batch(self, pool: &PgPool) -> sqlx::Result<Option<BackoffRelease>> {
        let released = sqlx::query!(
            r#"
            -- release: those with the shortest backoff first, without rows that another transaction has locked. What
            -- is released is due before the next batch begins, so that no batch takes it again
            WITH waiting AS MATERIALIZED (
                SELECT workflow_id, (row_number() OVER (ORDER BY due_at, workflow_id) - 1) / $2::float8 AS secs
                  FROM (SELECT workflow_id, due_at
                          FROM publications
                         WHERE due_at > (SELECT cronbox_now()) + make_interval(secs => $1)
                           AND error_class IN ('transient', 'environment')
                           AND lease_owner IS NULL
                         ORDER BY due_at
                         LIMIT $3
                           FOR UPDATE SKIP LOCKED) AS next
            )
            UPDATE publications AS p
               SET due_at = LEAST(p.due_at, (SELECT cronbox_now()) + make_interval(secs => $1 + waiting.secs))
              FROM waiting
             WHERE p.workflow_id = waiting.workflow_id
            "#,
            self.from_secs,
            self.per_sec,
            RELEASED_AT_ONCE,
        )
        .execute(pool)
        .await?
        .rows_affected();
        let from_secs = self.from_secs + f64::from(u32::try_from(released).unwrap_or(u32::MAX)) / self.per_sec;
        Ok((released > 0).then_some(BackoffRelease { from_secs, ..self }))
    }
}

/// Whether a workflow is due, also a leased one.
pub(crate) async fn has_due(pool: &PgPool) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"
        -- has due: `due_at` stays set while leased, so this finds leased workflows, too. By lane, as the index is, and in
        -- its order: Postgres may answer EXISTS by reading the whole table
        SELECT (SELECT TRUE FROM publications WHERE NOT is_repair AND due_at <= (SELECT cronbox_now()) ORDER BY due_at LIMIT 1) IS NOT NULL
            OR (SELECT TRUE FROM publications WHERE is_repair AND due_at <= (SELECT cronbox_now()) ORDER BY due_at LIMIT 1) IS NOT NULL
               AS "has_due!"
        "#
    )
    .fetch_one(pool)
    .await
}

/// Counts the workflows that are due or backed off, up to [`MOST_COUNTED`] of each lane and of the backed-off ones.
pub(crate) async fn count_remaining(pool: &PgPool, marks: Marks) -> sqlx::Result<u64> {
    let count = sqlx::query_scalar!(
        r#"
        -- count remaining: a verify pass or an end in the future is no backlog. Each part is read by an index and
        -- bounded: many workflows that end one day cost nothing
        SELECT (SELECT COUNT(*)
                  FROM (SELECT FROM publications
                         WHERE NOT is_repair
                           AND due_at >= CASE WHEN $1 <= (SELECT cronbox_now()) THEN COALESCE($2::timestamptz, '-infinity')
                                              ELSE '-infinity' END
                           AND due_at <= (SELECT cronbox_now())
                         LIMIT $4) AS edits)
             + (SELECT COUNT(*)
                  FROM (SELECT FROM publications
                         WHERE is_repair
                           AND due_at >= CASE WHEN $1 <= (SELECT cronbox_now()) THEN COALESCE($3::timestamptz, '-infinity')
                                              ELSE '-infinity' END
                           AND due_at <= (SELECT cronbox_now())
                         LIMIT $4) AS repairs)
             + (SELECT COUNT(*)
                  FROM (SELECT FROM publications
                         WHERE due_at > (SELECT cronbox_now())
                           AND error_class IN ('transient', 'environment', 'unclassified')
                         LIMIT $4) AS backed_off) AS "count!"
        "#,
        marks.read_on,
        marks.edits,
        marks.repairs,
        MOST_COUNTED,
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
        SELECT EXTRACT(EPOCH FROM LEAST(
                   (SELECT due_at FROM publications
                     WHERE NOT is_repair AND due_at > (SELECT cronbox_now()) ORDER BY due_at LIMIT 1),
                   (SELECT due_at FROM publications
                     WHERE is_repair AND due_at > (SELECT cronbox_now()) ORDER BY due_at LIMIT 1)
               ) - cronbox_now())::float8 AS secs
        "#
    )
    .fetch_one(pool)
    .await?;
    Ok(secs.map(|secs| Duration::try_from_secs_f64(secs.max(0.0)).unwrap_or(Duration::MAX)))
}

/// Returns how long until the next failed workflow is tried again, `None` if none waits.
///
/// A retry that became due after the last claim, or whose row was locked, is tried again after a second.
pub(crate) async fn next_retry(pool: &PgPool) -> sqlx::Result<Option<Duration>> {
    let secs = sqlx::query_scalar!(
        r#"
        -- next retry: a verify pass or an end in the future is no failure. Each part has a bound that only the index of
        -- what is backed off can use
        SELECT LEAST(
                   (SELECT EXTRACT(EPOCH FROM due_at - (SELECT cronbox_now()))::float8
                      FROM publications
                     WHERE due_at > (SELECT cronbox_now())
                       AND error_class IN ('transient', 'environment', 'unclassified')
                     ORDER BY due_at
                     LIMIT 1),
                   (SELECT 1::float8
                      FROM publications
                     WHERE due_at <= (SELECT cronbox_now())
                       AND lease_until IS NULL
                       AND error_class IN ('transient', 'environment', 'unclassified')
                     ORDER BY due_at
                     LIMIT 1)
               ) AS secs
        "#
    )
    .fetch_one(pool)
    .await?;
    Ok(secs.map(|secs| Duration::try_from_secs_f64(secs.max(0.0)).unwrap_or(Duration::MAX)))
}

async fn lease_due(
    tx: &mut PgConnection,
    claimant: &Claimant,
    wanted: Wanted,
    marks: Marks,
    chosen: &[i64],
) -> sqlx::Result<Vec<Claim>> {
    let batch = match wanted.choice {
        Choice::Usual => i64::from(claimant.batch_size),
        Choice::Suspects => 1,
    };
    let repairs = batch.min(i64::try_from(wanted.repairs).unwrap_or(i64::MAX));
    let ((of_first, of_second), (first_mark, second_mark)) = match wanted.first {
        Lane::Edit => ((batch, repairs), (marks.edits, marks.repairs)),
        Lane::Repair => ((repairs, batch), (marks.repairs, marks.edits)),
    };
    let rows = sqlx::query!(
        r#"
        -- claim: MATERIALIZED, because the planner may run an inlined LIMIT .. SKIP LOCKED once per
        -- row and take more than the limit. If the ledger is held during a drain, or a newer deployment publishes,
        -- `permitted` is empty and no row is claimed. Its functions are evaluated once, because each call costs as much as
        -- the search in the index
        WITH permitted AS MATERIALIZED (
            SELECT cronbox_now() AS now
             WHERE cronbox_hold() IS NULL
               AND NOT EXISTS (SELECT FROM config_generation WHERE (generation, template) > ($7, $8))
        ), chosen AS MATERIALIZED (
            -- what was chosen team by team, under the conditions of the others, because it may be claimed or published by
            -- now. Row by row, and with a condition that no index of what is due can use: with a list of ids Postgres may
            -- read all that is due
            SELECT p.workflow_id, p.is_takeover, p.verify_at
              FROM unnest($15::bigint[]) AS c (workflow_id)
             CROSS JOIN LATERAL (
                   SELECT workflow_id, lease_until IS NOT NULL AS is_takeover, verify_at
                     FROM publications
                    WHERE workflow_id = c.workflow_id
                      AND is_repair = $9
                      AND COALESCE(due_at <= (SELECT now FROM permitted), FALSE)
                      AND (lease_until IS NULL OR lease_until <= (SELECT now FROM permitted))
                      AND (attempt_count >= $4 OR lease_until IS NOT NULL AND attempt_count >= $6) = $5
                      FOR UPDATE SKIP LOCKED
             ) AS p
        ), first AS MATERIALIZED (
            SELECT workflow_id, lease_until IS NOT NULL AS is_takeover, verify_at
              FROM publications
             WHERE is_repair = $9
               AND workflow_id <> ALL($15)
               AND due_at >= CASE WHEN $10 <= (SELECT now FROM permitted) THEN COALESCE($11::timestamptz, '-infinity')
                                  ELSE '-infinity' END
               AND due_at <= (SELECT now FROM permitted)
               AND (lease_until IS NULL OR lease_until <= (SELECT now FROM permitted))
               AND (attempt_count >= $4 OR lease_until IS NOT NULL AND attempt_count >= $6) = $5
             ORDER BY due_at
             -- for a row that an edit has changed since the snapshot, Postgres evaluates the statement again, and counts
             -- the rows before again, too
             LIMIT GREATEST(0, $13 - (SELECT COUNT(*) FROM chosen))
               FOR UPDATE SKIP LOCKED
        ), second AS MATERIALIZED (
            SELECT workflow_id, lease_until IS NOT NULL AS is_takeover, verify_at
              FROM publications
             WHERE is_repair = NOT $9
               AND due_at >= CASE WHEN $10 <= (SELECT now FROM permitted) THEN COALESCE($12::timestamptz, '-infinity')
                                  ELSE '-infinity' END
               AND due_at <= (SELECT now FROM permitted)
               AND (lease_until IS NULL OR lease_until <= (SELECT now FROM permitted))
               AND (attempt_count >= $4 OR lease_until IS NOT NULL AND attempt_count >= $6) = $5
             ORDER BY due_at
             LIMIT GREATEST(0, LEAST($14, $3 - (SELECT COUNT(*) FROM chosen) - (SELECT COUNT(*) FROM first)))
               FOR UPDATE SKIP LOCKED
        ), due AS MATERIALIZED (
            SELECT workflow_id, is_takeover, verify_at FROM chosen
             UNION ALL
            SELECT workflow_id, is_takeover, verify_at FROM first
             UNION ALL
            SELECT workflow_id, is_takeover, verify_at FROM second
             LIMIT $3
        )
        UPDATE publications AS p
           SET epoch = p.epoch + 1,
               lease_owner = $1,
               lease_until = (SELECT now FROM permitted) + make_interval(secs => $2),
               attempt_count = p.attempt_count + 1,
               -- a takeover: the last request of the former owner may have been applied, or may still arrive while its
               -- signature is valid; so this owner calls, and a verify pass checks again after that
               spec_hash = CASE WHEN due.is_takeover THEN NULL ELSE p.spec_hash END,
               verify_at = CASE WHEN due.is_takeover
                                THEN GREATEST(p.verify_at, (SELECT now FROM permitted) + verify_wait(p.workflow_id))
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
                  p.is_repair,
                  COALESCE(due.verify_at <= (SELECT now FROM permitted) AND NOT due.is_takeover, FALSE) AS "is_verify_due!"
        "#,
        claimant.owner,
        LEASE.as_secs_f64(),
        batch,
        i32::from(claimant.max_attempts),
        wanted.choice == Choice::Suspects,
        CRASHES,
        claimant.generation.number,
        claimant.generation.template,
        wanted.first == Lane::Repair,
        marks.read_on,
        first_mark,
        second_mark,
        of_first,
        of_second,
        chosen,
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
            lane: if row.is_repair { Lane::Repair } else { Lane::Edit },
        })
        .collect())
}

/// Records up to which outbox row each claim reaches, and that `owner` has leases.
///
/// Returns how many publishers have leases now, including it.
async fn cover(tx: &mut PgConnection, claims: &mut [Claim], owner: &str) -> sqlx::Result<u32> {
    let ids: Vec<i64> = claims.iter().map(|claim| claim.workflow_id.0).collect();
    let covered = sqlx::query!(
        r#"
        -- cover: a later statement than the one that locked, so that it sees every row that earlier owners of the lock
        -- inserted. It also joins the publishers and counts the others, because each statement costs a round trip
        WITH me AS (
            INSERT INTO publishers (owner, live_until)
            VALUES ($2, cronbox_now() + make_interval(secs => $3))
            ON CONFLICT (owner) DO UPDATE SET live_until = excluded.live_until
        )
        SELECT newest.id AS "id?", newest.payload ->> 'traceparent' AS traceparent,
               (SELECT COUNT(*) FROM publishers WHERE live_until > cronbox_now() AND owner <> $2) AS "others!"
          FROM unnest($1::bigint[]) WITH ORDINALITY AS claimed (workflow_id, place)
          LEFT JOIN LATERAL (
               SELECT id, payload
                 FROM outbox_events
                WHERE aggregate_id = claimed.workflow_id
                  AND processed_on IS NULL
                  AND failed_on IS NULL
                ORDER BY aggregate_id DESC, id DESC
                LIMIT 1
         ) AS newest ON TRUE
         ORDER BY claimed.place
        "#,
        &ids,
        owner,
        LEASE.as_secs_f64(),
    )
    .fetch_all(tx)
    .await?;
    let others = covered.first().map_or(0, |row| row.others);
    for (claim, row) in claims.iter_mut().zip(covered) {
        claim.seen = row.id.unwrap_or(0);
        claim.traceparent = row.traceparent;
    }
    Ok(u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1))
}
