//! Step 1 of 7: verifies the audit log by its hash chain: whether an entry was changed, removed or inserted.
//!
//! Each part reads the blocks of some batches and all entries between their ends, and computes each hash again. Of a
//! month that the retention has dropped, only the hashes of its blocks remain: they are the anchors of later ones.
//! A program that may change the chain itself can compute it anew, so compare its ends with ends that were stored
//! elsewhere.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use db::PgConnection;

use super::chain::{self, BlockHead, hash_block};

/// How many batches one part verifies.
const BATCHES: i64 = 20;
/// How many entries of one batch are read at most. A batch has 1,000, so that more are inserted ones.
const MOST_ENTRIES: i64 = 2_000;

/// How entries and chain differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditDifferenceKind {
    /// The block has as many entries as it had, and another content.
    Changed,
    /// Entries of the block, or a block, are missing.
    Removed,
    /// There are more entries than the block had, or entries of no block.
    Inserted,
}

/// A difference: entries of a team in a span of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What happened to them.
    pub kind: AuditDifferenceKind,
    /// Their team; `None`: entries without a team.
    pub team_id: Option<i64>,
    /// Their ids are higher.
    pub after_id: i64,
    /// Their ids are this or lower.
    pub through_id: i64,
}

/// The end of the chain of a team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainEnd {
    /// The team; `None`: entries without a team.
    pub team_id: Option<i64>,
    /// The number of its last block.
    pub sequence: i64,
    /// The hash of this block.
    pub hash: Vec<u8>,
}

/// The result of one part.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// How many entries it compared.
    pub entries: i64,
    /// How many blocks it verified without their entries, because their month is dropped.
    pub anchors: i64,
    /// The differences.
    pub differences: Vec<Difference>,
    /// Entries up to this id are verified.
    pub through_id: i64,
    /// Whether blocks remain.
    pub has_more: bool,
}

/// A block with the hash of the block before, and whether its month is dropped.
struct StoredBlock {
    head: BlockHead,
    hash: Vec<u8>,
    previous: Option<Vec<u8>>,
    is_dropped: bool,
}

type Groups = BTreeMap<(i64, DateTime<Utc>), Vec<Vec<u8>>>;

/// Verifies the next batches after this id: one, and further ones until `patience` has passed. `None`: no batch ends at
/// this id, so a verification that continues there would leave out entries.
///
/// It takes its lock before the transaction has a snapshot, so it must be the first statement of the transaction. All
/// statements need the same snapshot.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn verify_part(db: &mut PgConnection, after_id: i64, patience: Duration) -> sqlx::Result<Option<Verified>> {
    let began = Instant::now();
    lock_log(db).await?;
    let mut verified = Verified { through_id: after_id, ..Verified::default() };
    match after_id {
        0 => verified.differences = list_below_chain(db).await?,
        _ if !is_batch_end(db, after_id).await? => return Ok(None),
        _ => {}
    }
    let ends = read_batch_ends(db, after_id).await?;
    let last = ends.last().copied().unwrap_or(after_id);
    let is_full = i64::try_from(ends.len()) == Ok(BATCHES);
    let mut blocks = read_blocks(db, after_id, last).await?.into_iter().peekable();
    // Batch by batch: all digests of a part would take one statement longer than a read may take.
    for end in ends {
        let batch: Vec<_> = std::iter::from_fn(|| blocks.next_if(|block| block.head.through_id == end)).collect();
        let entries = chain::read_digests(db, verified.through_id, end, MOST_ENTRIES).await?;
        verified.compare_batch(verified.through_id, &batch, chain::group_entries(entries));
        verified.through_id = end;
        if began.elapsed() >= patience {
            break;
        }
    }
    verified.has_more = is_full || verified.through_id < last;
    Ok(Some(verified))
}

impl Verified {
    /// Compares the blocks of one batch with the entries after the batch before.
    fn compare_batch(&mut self, before: i64, blocks: &[StoredBlock], mut groups: Groups) {
        for block in blocks {
            let digests = groups.remove(&(block.head.team_id, block.head.month)).unwrap_or_default();
            match block.compare(&digests) {
                None if digests.is_empty() => self.anchors += 1,
                None => self.entries += block.head.entry_count,
                Some(kind) => self.differences.push(block.difference(kind)),
            }
        }
        // A batch begins where the one before ended. Between the anchors of dropped months, blocks were removed.
        let is_kept = blocks.iter().any(|block| !block.is_dropped);
        let is_gap = is_kept && blocks.iter().any(|block| block.head.after_id != before);
        let through_id = blocks.first().map_or(before, |block| block.head.through_id);
        if is_gap {
            let difference =
                Difference { kind: AuditDifferenceKind::Removed, team_id: None, after_id: before, through_id };
            self.differences.push(difference);
        }
        for (team_id, _) in groups.into_keys() {
            let team_id = known_team(team_id);
            self.differences.push(Difference {
                kind: AuditDifferenceKind::Inserted,
                team_id,
                after_id: before,
                through_id,
            });
        }
    }
}

impl StoredBlock {
    /// Returns how the block differs from these entries, if it does.
    fn compare(&self, digests: &[Vec<u8>]) -> Option<AuditDifferenceKind> {
        let is_first = self.head.sequence == 1;
        if self.is_dropped && digests.is_empty() {
            return None;
        }
        let Some(previous) = self.previous.as_deref().or(is_first.then_some([].as_slice())) else {
            return Some(AuditDifferenceKind::Removed);
        };
        if hash_block(previous, &self.head, digests) == self.hash {
            return None;
        }
        let found = i64::try_from(digests.len()).unwrap_or(i64::MAX);
        Some(match found.cmp(&self.head.entry_count) {
            std::cmp::Ordering::Less => AuditDifferenceKind::Removed,
            std::cmp::Ordering::Equal => AuditDifferenceKind::Changed,
            std::cmp::Ordering::Greater => AuditDifferenceKind::Inserted,
        })
    }

    fn difference(&self, kind: AuditDifferenceKind) -> Difference {
        let BlockHead { team_id, after_id, through_id, .. } = self.head;
        Difference { kind, team_id: known_team(team_id), after_id, through_id }
    }
}

fn known_team(team_id: i64) -> Option<i64> {
    (team_id != chain::OPERATORS).then_some(team_id)
}

/// Keeps months from being dropped until the transaction ends. A drop after the snapshot would remove entries of which
/// the snapshot still has the bound. `LOCK` takes no snapshot; a `SELECT` would take it before its locks.
async fn lock_log(db: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- lock the months of the audit log
        LOCK TABLE audit_log IN ACCESS SHARE MODE
        "#
    )
    .execute(db)
    .await
    .map(drop)
}

async fn is_batch_end(db: &mut PgConnection, id: i64) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"
        -- whether a batch of the audit chain ends at an id
        SELECT EXISTS (SELECT FROM audit_chain WHERE through_id = $1) AS "is!"
        "#,
        id,
    )
    .fetch_one(db)
    .await
}

/// Lists entries below the first id, of each team: the first blocks begin after 0.
async fn list_below_chain(db: &mut PgConnection) -> sqlx::Result<Vec<Difference>> {
    let teams = sqlx::query!(
        r#"
        -- audit entries below the chain
        SELECT team_id, min(id) AS "lowest!" FROM audit_log WHERE id <= 0 GROUP BY team_id ORDER BY team_id LIMIT 1000
        "#
    )
    .fetch_all(db)
    .await?;
    let teams = teams.into_iter().map(|team| Difference {
        kind: AuditDifferenceKind::Inserted,
        team_id: team.team_id,
        after_id: team.lowest.saturating_sub(1),
        through_id: 0,
    });
    Ok(teams.collect())
}

async fn read_batch_ends(db: &mut PgConnection, after_id: i64) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        r#"
        -- ends of the next batches of the audit chain
        SELECT DISTINCT through_id FROM audit_chain WHERE through_id > $1 ORDER BY through_id LIMIT $2
        "#,
        after_id,
        BATCHES,
    )
    .fetch_all(db)
    .await
}

async fn read_blocks(db: &mut PgConnection, after_id: i64, through_id: i64) -> sqlx::Result<Vec<StoredBlock>> {
    let rows = sqlx::query!(
        r#"
        -- blocks of the audit chain, each with the hash of the block before
        SELECT c.team_id, c.sequence, c.month, c.after_id, c.through_id, c.entry_count, c.hash,
               p.hash AS "previous?", c.month < audit_kept_from() AS "is_dropped!"
          FROM audit_chain c LEFT JOIN audit_chain p ON p.team_id = c.team_id AND p.sequence = c.sequence - 1
         WHERE c.through_id > $1 AND c.through_id <= $2
         ORDER BY c.through_id, c.team_id, c.sequence
        "#,
        after_id,
        through_id,
    )
    .fetch_all(db)
    .await?;
    let blocks = rows.into_iter().map(|row| StoredBlock {
        head: BlockHead {
            team_id: row.team_id,
            sequence: row.sequence,
            month: row.month,
            after_id: row.after_id,
            through_id: row.through_id,
            entry_count: row.entry_count,
        },
        hash: row.hash,
        previous: row.previous,
        is_dropped: row.is_dropped,
    });
    Ok(blocks.collect())
}

/// Returns the end of each chain, to be stored elsewhere.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_chain_ends(db: &mut PgConnection) -> sqlx::Result<Vec<ChainEnd>> {
    let rows = sqlx::query!(
        r#"
        -- ends of all audit chains
        SELECT t.id AS "team_id!", last.sequence AS "sequence!", last.hash AS "hash!"
          FROM (SELECT 0::bigint AS id UNION ALL SELECT id FROM teams) AS t
         CROSS JOIN LATERAL (SELECT sequence, hash FROM audit_chain c
                              WHERE c.team_id = t.id ORDER BY sequence DESC LIMIT 1) AS last
         ORDER BY t.id
        "#
    )
    .fetch_all(db)
    .await?;
    let ends = rows.into_iter();
    let ends = ends.map(|row| ChainEnd { team_id: known_team(row.team_id), sequence: row.sequence, hash: row.hash });
    Ok(ends.collect())
}

/// Returns those of these blocks that exist, each given by its team, 0 for none, and its number.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_blocks(db: &mut PgConnection, blocks: &[(i64, i64)]) -> sqlx::Result<Vec<ChainEnd>> {
    let (teams, sequences): (Vec<i64>, Vec<i64>) = blocks.iter().copied().unzip();
    let rows = sqlx::query!(
        r#"
        -- blocks of an earlier verification
        SELECT c.team_id, c.sequence, c.hash
          FROM UNNEST($1::bigint[], $2::bigint[]) AS b (team_id, sequence)
          JOIN audit_chain c ON c.team_id = b.team_id AND c.sequence = b.sequence
         ORDER BY c.team_id, c.sequence
        "#,
        &teams,
        &sequences,
    )
    .fetch_all(db)
    .await?;
    let rows = rows.into_iter();
    let found = rows.map(|row| ChainEnd { team_id: known_team(row.team_id), sequence: row.sequence, hash: row.hash });
    Ok(found.collect())
}
