//! The audit log.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::raw::RawJson;

/// An entry of the audit log.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct AuditView {
    /// Its id.
    pub id: i64,
    /// When the request began.
    pub at: DateTime<Utc>,
    /// Who: `key:<public prefix>`, `person:<name> (<issuer> <subject>)`, `cli:<user>`, `file:<name>`, `cronbox`, or `address:<address>` for failed logins.
    pub actor: String,
    /// The name of the key, as it was then.
    pub actor_name: Option<String>,
    /// The address from which the request came. Members of a team see only those of the team's keys.
    pub source_address: Option<String>,
    /// The trace of the request, 32 hex digits.
    pub trace_id: Option<String>,
    /// What is done.
    #[schema(example = "update")]
    pub verb: String,
    /// What it was done to.
    #[schema(example = "workflow:12")]
    pub subject: String,
    /// The team of the object; null: an object of the operators, or an entry of an earlier version.
    pub team_id: Option<i64>,
    /// The members that differ, as they were before. A member above 1,024 bytes is its `sha256` and its `bytes`.
    #[schema(value_type = Option<Object>)]
    pub before: Option<RawJson>,
    /// The same, as they were after.
    #[schema(value_type = Option<Object>)]
    pub after: Option<RawJson>,
}

/// How audit log and hash chain compare.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct AuditVerifyView {
    /// Entries compared, in this part.
    pub entries: i64,
    /// Blocks of dropped months, of which only the hash is kept, in this part.
    pub anchors: i64,
    /// Empty: no entry was changed, removed or inserted.
    pub differences: Vec<AuditDifferenceView>,
    /// Entries up to this id are verified; later ones are not in the chain yet.
    pub through_id: i64,
    /// The ends of all chains, with the last part. Store them elsewhere: a role that can change the chain can compute it anew,
    /// but not to these ends.
    pub ends: Vec<ChainEndView>,
    /// The blocks that the request names, as they are now. If one is missing, or has another hash than it had, the chain
    /// was computed anew.
    pub blocks: Vec<ChainEndView>,
    /// Send it as `cursor` for the rest; null: all is verified.
    pub next_cursor: Option<String>,
}

/// Entries that differ from the chain: of this team, with ids above `after_id` up to `through_id`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct AuditDifferenceView {
    /// `changed`, `removed` or `inserted`.
    pub kind: AuditDifferenceKind,
    /// Null: entries without a team, or a missing part of all chains.
    pub team_id: Option<i64>,
    /// The id before the first.
    pub after_id: i64,
    /// The last id.
    pub through_id: i64,
}

/// The last block of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
pub struct ChainEndView {
    /// Null: the chain of entries without a team.
    pub team_id: Option<i64>,
    /// Its place in the chain, from 1 on.
    pub sequence: i64,
    /// SHA-256 in hex.
    pub hash: String,
}

/// How entries and chain differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditDifferenceKind {
    /// The block has as many entries as it had, and another content.
    Changed,
    /// Entries of the block, or a block, are missing.
    Removed,
    /// There are more entries than the block had, or entries of no block.
    Inserted,
}
