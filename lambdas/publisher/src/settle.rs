//! Step 4 of 7: writes the outcomes of claims, fenced by their epochs.
//!
//! One short transaction. The first statement locks the publications that this claim still owns. Later statements,
//! which see every row inserted under the lock before, mark the outbox rows and set when the publisher checks the
//! workflow again.

mod published;
pub(crate) mod settlement;
mod unpublished;

use std::collections::{HashMap, HashSet};

use db::{PgConnection, PgPool};

use self::published::{published_params, settle_published};
use self::settlement::{Settlement, count_outcomes};
use self::unpublished::{mirror_errors, settle_unpublished, unpublished_params};
use crate::failpoint::{Injector, Point};
use crate::report::Report;

/// What a settle wrote, and what it had to leave.
pub(crate) struct Settled {
    pub(crate) report: Report,
    /// Still owned by this claim, but locked by another transaction.
    pub(crate) locked: HashSet<i64>,
}

/// Settles in one transaction all publications that the claims still own and that are not locked, and counts them.
///
/// It waits for no row lock, because one open transaction must not delay other workflows.
pub(crate) async fn settle_claims(
    pool: &PgPool,
    settlements: &[Settlement],
    injector: &Injector,
) -> sqlx::Result<Settled> {
    let mut tx = db::begin_transaction(pool).await?;
    let free = lock_free(&mut tx, settlements).await?;
    let is_free = |settlement: &&Settlement| free.contains_key(&settlement.claim.workflow_id.0);
    let mine = || settlements.iter().filter(is_free);
    let mut locked = HashSet::new();
    if free.len() < settlements.len() {
        let ours = list_ours(&mut tx, settlements).await?;
        locked.extend(ours.into_iter().filter(|id| !free.contains_key(id)));
    }
    let superseded = superseded(&mut tx, mine()).await?;
    let requested = requested(mine(), &free);
    let published: Vec<_> = mine().filter_map(|settlement| published_params(settlement, &superseded)).collect();
    let unpublished: Vec<_> =
        mine().filter_map(|settlement| unpublished_params(settlement, &superseded, &requested)).collect();
    let mut report = count_outcomes(mine());
    if !published.is_empty() {
        let marked = settle_published(&mut tx, &published).await?;
        report.processed = marked.rows;
        report.coalesced = marked.rows - marked.workflows;
    }
    if !unpublished.is_empty() {
        mirror_errors(&mut tx, &unpublished).await?;
        settle_unpublished(&mut tx, &unpublished).await?;
    }
    injector.pass_point(Point::P9).await;
    tx.commit().await?;
    injector.pass_point(Point::P10).await;
    Ok(Settled { report, locked })
}

/// Locks, in order, the publications that the claims still own and that no other transaction has locked; returns how many
/// repairs of each have been requested.
async fn lock_free(tx: &mut PgConnection, settlements: &[Settlement]) -> sqlx::Result<HashMap<i64, i64>> {
    let (ids, epochs) = keys(settlements);
    let locked = sqlx::query!(
        r#"
        -- lock free: by epoch, so that a former owner changes nothing; and only while the lease exists, so that a
        -- settle whose commit got no reply is not done twice
        SELECT p.workflow_id, p.repairs
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
    Ok(locked.into_iter().map(|row| (row.workflow_id, row.repairs)).collect())
}

/// Returns the workflows for which a repair was requested after the claim had read them. A success compares it in its
/// statement, which also knows the repairs that an app of an older version requests.
fn requested<'a>(settlements: impl Iterator<Item = &'a Settlement>, repairs: &HashMap<i64, i64>) -> HashSet<i64> {
    let claims = settlements.map(|settlement| &settlement.claim);
    let behind = claims.filter(|claim| repairs.get(&claim.workflow_id.0).is_some_and(|now| *now != claim.repairs));
    behind.map(|claim| claim.workflow_id.0).collect()
}

/// Returns the publications that the claims still own, locked or not.
async fn list_ours(tx: &mut PgConnection, settlements: &[Settlement]) -> sqlx::Result<HashSet<i64>> {
    let (ids, epochs) = keys(settlements);
    let ours = sqlx::query_scalar!(
        r#"
        -- list ours: a publication that another publisher has taken over is not this claim's to settle
        SELECT p.workflow_id
          FROM publications AS p
          JOIN unnest($1::bigint[], $2::bigint[]) AS mine (workflow_id, epoch)
            ON p.workflow_id = mine.workflow_id AND p.epoch = mine.epoch
         WHERE p.lease_owner IS NOT NULL
        "#,
        &ids,
        &epochs,
    )
    .fetch_all(tx)
    .await?;
    Ok(ours.into_iter().collect())
}

/// Returns the workflows that were edited after the claim had read them.
async fn superseded<'a>(
    tx: &mut PgConnection,
    settlements: impl Iterator<Item = &'a Settlement>,
) -> sqlx::Result<HashSet<i64>> {
    let (ids, seen): (Vec<i64>, Vec<i64>) =
        settlements.map(|settlement| (settlement.claim.workflow_id.0, settlement.claim.seen)).unzip();
    let newer = sqlx::query_scalar!(
        r#"
        -- superseded: a later statement than the lock, so that it sees an edit that was committed before
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

fn keys(settlements: &[Settlement]) -> (Vec<i64>, Vec<i64>) {
    settlements.iter().map(|settlement| (settlement.claim.workflow_id.0, settlement.claim.epoch)).unzip()
}
