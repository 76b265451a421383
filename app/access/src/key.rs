//! Step 1 of 7: a key, without its text.

use std::net::IpAddr;
use std::str::FromStr as _;

use chrono::{DateTime, Utc};
use ipnet::IpNet;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::rights::{Kind, Role, Scope, Scopes};

/// A key without its secret.
#[derive(Clone, Debug)]
pub struct Key {
    /// The id.
    pub id: Uuid,
    /// The public part.
    pub prefix: String,
    /// What it gives access to.
    pub kind: Kind,
    /// The team of a team key.
    pub team_id: Option<i64>,
    /// The role of a team key.
    pub role: Option<Role>,
    /// What it permits.
    pub scopes: Scopes,
    /// What it is for.
    pub name: String,
    /// When it was created.
    pub created_on: DateTime<Utc>,
    /// When it expires; it is refused since then.
    pub expires_on: Option<DateTime<Utc>>,
    /// The networks from which it is accepted; `None` = all.
    pub allowed_cidrs: Option<Vec<IpNet>>,
    /// When it was last used, to the minute.
    pub last_used_on: Option<DateTime<Utc>>,
    /// The address of the client that used it.
    pub last_used_from: Option<IpAddr>,
    /// When it was revoked; it is refused since then.
    pub revoked_on: Option<DateTime<Utc>>,
    /// The key that its owner has got in its place.
    pub rotated_into: Option<Uuid>,
}

/// The owner of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// An operator.
    Admin,
    /// A member of a team.
    Team(i64, Role),
    /// The runner.
    Scheduler,
}

impl Holder {
    /// The kind of its keys.
    #[must_use]
    pub fn kind(self) -> Kind {
        self.columns().0
    }

    /// The scope of its keys that have no others.
    #[must_use]
    pub fn scopes(self) -> Scopes {
        let (kind, _, role) = self.columns();
        Scopes::of_kind(kind, role)
    }

    pub(crate) fn columns(self) -> (Kind, Option<i64>, Option<Role>) {
        match self {
            Holder::Admin => (Kind::Admin, None, None),
            Holder::Team(team_id, role) => (Kind::Team, Some(team_id), Some(role)),
            Holder::Scheduler => (Kind::Scheduler, None, None),
        }
    }
}

impl Key {
    /// Its owner.
    #[must_use]
    pub fn holder(&self) -> Holder {
        match self.kind {
            Kind::Admin => Holder::Admin,
            Kind::Scheduler => Holder::Scheduler,
            // A constraint gives each team key a team and a role; no team has the id 0.
            Kind::Team => Holder::Team(self.team_id.unwrap_or_default(), self.role.unwrap_or(Role::Viewer)),
        }
    }

    /// Whether it is refused because it has expired.
    #[must_use]
    pub fn has_expired(&self, now: DateTime<Utc>) -> bool {
        self.expires_on.is_some_and(|expires_on| expires_on <= now)
    }

    pub(crate) fn for_audit(&self) -> Value {
        let scopes: Vec<_> = self.scopes.iter().collect();
        json!({
            "prefix": self.prefix, "kind": self.kind, "team_id": self.team_id, "role": self.role, "name": self.name,
            "scopes": scopes, "expires_on": self.expires_on, "allowed_cidrs": self.allowed_cidrs,
        })
    }
}

/// A key as the database has it.
pub(crate) struct KeyRow {
    pub(crate) id: Uuid,
    pub(crate) prefix: String,
    pub(crate) kind: Kind,
    pub(crate) team_id: Option<i64>,
    pub(crate) role: Option<Role>,
    pub(crate) scopes: Option<Vec<String>>,
    pub(crate) name: String,
    pub(crate) created_on: DateTime<Utc>,
    pub(crate) expires_on: Option<DateTime<Utc>>,
    pub(crate) allowed_cidrs: Option<Vec<String>>,
    pub(crate) last_used_on: Option<DateTime<Utc>>,
    pub(crate) last_used_from: Option<String>,
    pub(crate) revoked_on: Option<DateTime<Utc>>,
    pub(crate) rotated_into: Option<Uuid>,
}

impl From<KeyRow> for Key {
    /// A scope that this version does not know permits nothing, and a network that it cannot read contains no address.
    fn from(row: KeyRow) -> Self {
        let all = Scopes::of_kind(row.kind, row.role);
        let networks = |named: Vec<String>| named.iter().filter_map(|one| IpNet::from_str(one).ok()).collect();
        Self {
            id: row.id,
            prefix: row.prefix,
            kind: row.kind,
            team_id: row.team_id,
            role: row.role,
            scopes: match row.scopes {
                Some(named) => all.limited_to(named.iter().filter_map(|word| Scope::parse(word))),
                None => all,
            },
            name: row.name,
            created_on: row.created_on,
            expires_on: row.expires_on,
            allowed_cidrs: row.allowed_cidrs.map(networks),
            last_used_on: row.last_used_on,
            last_used_from: row.last_used_from.and_then(|address| address.parse().ok()),
            revoked_on: row.revoked_on,
            rotated_into: row.rotated_into,
        }
    }
}
