//! Step 4 of 7: writes down what became of a claim, fenced by its epoch.
//!
//! One short transaction: the first statement locks the publications that are still ours; later
//! ones, which see every row inserted under the lock before, mark the outbox rows and set when the
//! publisher is to look again.

mod published;
mod unpublished;

use std::collections::HashSet;

use sqlx::{PgConnection, PgPool};

use self::published::{mark_processed, published, settle_published};
use self::unpublished::{mirror_errors, settle_unpublished, unpublished};
use crate::inject::{Injector, Point};
use crate::report::Report;
use crate::settlement::{Settlement, count};

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

fn keys(settlements: &[Settlement]) -> (Vec<i64>, Vec<i64>) {
    settlements.iter().map(|settlement| (settlement.claim.workflow_id.0, settlement.claim.epoch)).unzip()
}
