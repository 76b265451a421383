//! Step 1 of 7: the hash chain over the audit log, which the job `audit` extends after the entries are committed.
//!
//! Settled entries are read in the order of their ids, in batches. The entries of one team and one month in a batch are
//! a block. Its hash contains the hash of the team's block before, so that a later change of any entry shows. A month is
//! dropped as a whole; its last block stays as the anchor of the next one.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use sha2::{Digest as _, Sha256};

use super::writers;

/// Name of the job in the table `jobs`.
pub const JOB: &str = "audit";
/// The team of the entries that have none.
pub const OPERATORS: i64 = 0;
/// How many entries one transaction chains.
const BATCH: i64 = 1_000;
/// How many batches one turn chains.
const BATCHES: u32 = 20;
/// How long a turn waits for transactions that have written entries. An edit takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// The key of the lock of the instance that extends the chain.
const EXTENDING: i64 = 0x6175_6469_7463_6861;
/// The first field of what is hashed: another way to hash has another name.
const FORMAT: &[u8] = b"cronbox audit chain 1";

/// The result of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extended {
    /// How many entries were added to the chain.
    pub entries: u64,
    /// Whether more entries remain.
    pub may_be_more: bool,
    /// Whether an open transaction, or another instance, keeps entries from the chain.
    pub is_waiting: bool,
}

/// The digest of one entry, with what decides its block.
pub(super) struct Digested {
    pub(super) id: i64,
    pub(super) team_id: i64,
    pub(super) month: DateTime<Utc>,
    pub(super) digest: Vec<u8>,
}

/// A block without its hash.
#[derive(Clone, Debug)]
pub(super) struct BlockHead {
    pub(super) team_id: i64,
    pub(super) sequence: i64,
    pub(super) month: DateTime<Utc>,
    pub(super) after_id: i64,
    pub(super) through_id: i64,
    pub(super) entry_count: i64,
}

/// A block of the chain.
struct Block {
    head: BlockHead,
    hash: Vec<u8>,
}

/// Adds settled entries to the chain, as many as one turn may.
///
/// A batch is one transaction: a killed job loses nothing, and of two instances one adds a batch.
///
/// # Errors
/// Fails if the database fails; earlier batches remain.
pub async fn extend_chain(pool: &PgPool) -> sqlx::Result<Extended> {
    let Some(settled) = writers::settled_through(pool, PATIENCE).await? else {
        return Ok(Extended { is_waiting: true, ..Extended::default() });
    };
    let mut extended = Extended::default();
    for _ in 0..BATCHES {
        let Some(added) = extend_once(pool, settled).await? else {
            return Ok(Extended { is_waiting: true, may_be_more: false, ..extended });
        };
        extended.entries += added;
        extended.may_be_more = added == BATCH.unsigned_abs();
        if !extended.may_be_more {
            break;
        }
    }
    Ok(extended)
}

/// Returns how many entries it has added; `None` if another instance extends the chain.
async fn extend_once(pool: &PgPool, settled: i64) -> sqlx::Result<Option<u64>> {
    let mut tx = db::begin_transaction(pool).await?;
    if !try_lock_chain(&mut tx).await? {
        tx.rollback().await?;
        return Ok(None);
    }
    let after_id = newest_chained(&mut tx).await?;
    let entries = read_digests(&mut tx, after_id, settled, BATCH).await?;
    let Some(through_id) = entries.last().map(|entry| entry.id) else {
        tx.rollback().await?;
        return Ok(Some(0));
    };
    let added = entries.len() as u64;
    let blocks = make_blocks(&mut tx, entries, after_id, through_id).await?;
    insert_blocks(&mut tx, &blocks).await?;
    tx.commit().await?;
    Ok(Some(added))
}

/// Takes the lock of the chain until the transaction ends, unless another instance has it.
async fn try_lock_chain(tx: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"
        -- lock the audit chain
        SELECT pg_try_advisory_xact_lock($1) AS "is!"
        "#,
        EXTENDING,
    )
    .fetch_one(tx)
    .await
}

/// Returns the id of the newest entry in the chain, 0 without one. All entries with lower ids are in the chain.
///
/// # Errors
/// Fails if the database does not answer.
pub async fn newest_chained(db: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- newest entry of the audit chain
        SELECT COALESCE(max(through_id), 0) AS "id!" FROM audit_chain
        "#
    )
    .fetch_one(db)
    .await
}

/// Whether entries before this time are not in the chain yet.
///
/// # Errors
/// Fails if the database does not answer.
pub async fn has_unchained(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"
        -- has_unchained: by the key of each month
        SELECT EXISTS (SELECT FROM audit_log
                        WHERE at < $1 AND id > (SELECT COALESCE(max(through_id), 0) FROM audit_chain)) AS "has!"
        "#,
        before,
    )
    .fetch_one(db)
    .await
}

/// Removes blocks of dropped months that are no anchors, some at a time; returns how many.
///
/// # Errors
/// Fails if the database does not answer.
pub async fn remove_anchors(db: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        -- remove blocks of dropped months
        SELECT remove_audit_anchors() AS "removed!"
        "#
    )
    .fetch_one(db)
    .await
}

/// Reads the digests of entries, in the order of their ids. Postgres computes them, so that only 32 bytes of each travel.
pub(super) async fn read_digests(
    db: &mut PgConnection,
    after_id: i64,
    through_id: i64,
    limit: i64,
) -> sqlx::Result<Vec<Digested>> {
    sqlx::query_as!(
        Digested,
        r#"
        -- digests of audit entries: a time as microseconds, because its text depends on the session
        SELECT id, COALESCE(team_id, 0) AS "team_id!", date_trunc('month', at, 'UTC') AS "month!",
               sha256(convert_to(jsonb_build_array(
                   id, (extract(epoch FROM at) * 1000000)::bigint, actor, actor_name, source_address, trace_id, verb,
                   subject, team_id, before, after)::text, 'UTF8')) AS "digest!"
          FROM audit_log
         WHERE id > $1 AND id <= $2
         ORDER BY id, at
         LIMIT $3
        "#,
        after_id,
        through_id,
        limit,
    )
    .fetch_all(db)
    .await
}

/// Groups the entries of a batch by team and month, in the order of their ids.
pub(super) fn group_entries(entries: Vec<Digested>) -> BTreeMap<(i64, DateTime<Utc>), Vec<Vec<u8>>> {
    let mut groups = BTreeMap::<_, Vec<_>>::new();
    for entry in entries {
        groups.entry((entry.team_id, entry.month)).or_default().push(entry.digest);
    }
    groups
}

async fn make_blocks(
    tx: &mut PgConnection,
    entries: Vec<Digested>,
    after_id: i64,
    through_id: i64,
) -> sqlx::Result<Vec<Block>> {
    let groups = group_entries(entries);
    let mut ends = read_ends(tx, &groups.keys().map(|(team_id, _)| *team_id).collect::<Vec<_>>()).await?;
    let mut blocks = Vec::new();
    for ((team_id, month), digests) in groups {
        let (sequence, previous) = ends.remove(&team_id).unwrap_or_default();
        let head = BlockHead {
            team_id,
            sequence: sequence + 1,
            month,
            after_id,
            through_id,
            entry_count: i64::try_from(digests.len()).unwrap_or(i64::MAX),
        };
        let hash = hash_block(&previous, &head, &digests);
        ends.insert(team_id, (head.sequence, hash.clone()));
        blocks.push(Block { head, hash });
    }
    Ok(blocks)
}

/// Returns the number and the hash of the last block of each of these teams that has one.
async fn read_ends(tx: &mut PgConnection, teams: &[i64]) -> sqlx::Result<BTreeMap<i64, (i64, Vec<u8>)>> {
    let ends = sqlx::query!(
        r#"
        -- ends of the audit chains
        SELECT last.team_id AS "team_id!", last.sequence AS "sequence!", last.hash AS "hash!"
          FROM (SELECT DISTINCT unnest($1::bigint[]) AS team_id) AS t
         CROSS JOIN LATERAL (SELECT team_id, sequence, hash FROM audit_chain c
                              WHERE c.team_id = t.team_id ORDER BY sequence DESC LIMIT 1) AS last
        "#,
        teams,
    )
    .fetch_all(tx)
    .await?;
    Ok(ends.into_iter().map(|end| (end.team_id, (end.sequence, end.hash))).collect())
}

async fn insert_blocks(tx: &mut PgConnection, blocks: &[Block]) -> sqlx::Result<()> {
    let column = |value: fn(&BlockHead) -> i64| blocks.iter().map(|block| value(&block.head)).collect::<Vec<_>>();
    let months: Vec<DateTime<Utc>> = blocks.iter().map(|block| block.head.month).collect();
    let hashes: Vec<Vec<u8>> = blocks.iter().map(|block| block.hash.clone()).collect();
    sqlx::query!(
        r#"
        -- extend the audit chain
        INSERT INTO audit_chain (team_id, sequence, month, after_id, through_id, entry_count, hash)
        SELECT * FROM UNNEST($1::bigint[], $2::bigint[], $3::timestamptz[], $4::bigint[], $5::bigint[], $6::bigint[],
                             $7::bytea[])
        "#,
        &column(|head| head.team_id),
        &column(|head| head.sequence),
        &months,
        &column(|head| head.after_id),
        &column(|head| head.through_id),
        &column(|head| head.entry_count),
        &hashes,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Computes the hash of a block from that of the block before (empty: it is the first) and the digests of its entries.
pub(super) fn hash_block(previous: &[u8], head: &BlockHead, digests: &[Vec<u8>]) -> Vec<u8> {
    let BlockHead { team_id, sequence, month, after_id, through_id, entry_count } = head;
    let mut hash = Sha256::new();
    hash.update(FORMAT);
    // The length, so that an empty hash before is not confused with the next field.
    hash.update([u8::try_from(previous.len()).unwrap_or(u8::MAX)]);
    hash.update(previous);
    for number in [*team_id, *sequence, month.timestamp_micros(), *after_id, *through_id, *entry_count] {
        hash.update(number.to_be_bytes());
    }
    digests.iter().for_each(|digest| hash.update(digest));
    hash.finalize().to_vec()
}

impl Extended {
    /// Returns what it did, in a sentence.
    #[must_use]
    pub fn in_words(&self) -> String {
        let entries = self.entries;
        let waits = if self.is_waiting { "; newer ones wait for an open transaction" } else { "" };
        format!("{entries} entries of the audit log added to the hash chain{waits}")
    }
}
