//! Teams that were created, keys, and what they permit.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// The team that was created.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct TeamView {
    /// Its id.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Standard Webhooks secret of the team's http actions; shown only once, and null in the answer to a repeated request.
    pub signing_secret: Option<String>,
    /// When it was created.
    pub created_on: DateTime<Utc>,
}

/// A key in a list.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct KeyView {
    /// Its id.
    pub id: Uuid,
    /// Its public prefix, by which the audit log names it.
    pub prefix: String,
    /// The kind.
    pub kind: Kind,
    /// The team.
    pub team_id: Option<i64>,
    /// The role.
    pub role: Option<Role>,
    /// What it permits.
    pub scopes: Vec<Scope>,
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created_on: DateTime<Utc>,
    /// When it expires; null = never.
    pub expires_on: Option<DateTime<Utc>>,
    /// The networks from which it is accepted; null = all.
    pub allowed_cidrs: Option<Vec<String>>,
    /// When it was last used, to the minute; known after two minutes.
    pub last_used_on: Option<DateTime<Utc>>,
    /// The address of the client that used it then.
    #[schema(value_type = Option<String>)]
    pub last_used_from: Option<IpAddr>,
    /// When it was revoked; null: it was not.
    pub revoked_on: Option<DateTime<Utc>>,
    /// The key that its owner has got in its place.
    pub rotated_into: Option<Uuid>,
}

/// The key that was created.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct NewKeyView {
    /// The key itself; shown only once, and null in the answer to a repeated request.
    pub key: Option<String>,
    /// What a list shows of it.
    #[serde(flatten)]
    pub shown: KeyView,
}

/// What a key gives access to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// All teams. Everything except `:invoke`, or what its scopes permit.
    Admin,
    /// The workflows and runs of one team.
    Team,
    /// Only `:invoke`.
    Scheduler,
}

/// The permissions of a team key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read.
    Viewer,
    /// Read and write.
    Editor,
}

/// What a route requires, and what a key permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Read workflows, schedules, runs, backfills, statistics and limits.
    Read,
    /// `read`, and create and change workflows, schedules, runs and backfills.
    Edit,
    /// `read`, and read what belongs to all teams: verify, drift, outbox, audit log and keys without their secrets.
    Auditor,
    /// `auditor`, and check the drift, and retry and discard rows of the outbox.
    Operate,
    /// All of these, and teams, keys, limits, and the deletion of workflows.
    Admin,
    /// Only `:invoke`.
    Invoke,
}
