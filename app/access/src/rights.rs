//! Steps 1 and 7 of 7: what a key permits: its kind, its role and its scopes.
//!
//! | kind and role | scope, unless the key has others |
//! |---|---|
//! | admin | `admin` |
//! | team, role editor | `edit` |
//! | team, role viewer | `read` |
//! | scheduler | `invoke` |
//!
//! A key may have less than its kind and role permit, never more. The table of routes says which scope a route requires.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a key gives access to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, Serialize, Deserialize, ToSchema)]
#[sqlx(type_name = "text", rename_all = "lowercase")]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type, Serialize, Deserialize, ToSchema)]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read.
    Viewer,
    /// Read and write.
    Editor,
}

/// What a route requires, and what a key permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Read workflows, schedules, runs, backfills, statistics and limits.
    Read,
    /// `read`, and create and change workflows, schedules, runs and backfills.
    Edit,
    /// `read`, and read what belongs to all teams: verify, drift, outbox, audit log and keys without their secrets.
    Auditor,
    /// `auditor`, and check the drift, retry and discard rows of the outbox, and redrive and discard dead letters.
    Operate,
    /// All of these, and teams, keys, limits, and the deletion of workflows.
    Admin,
    /// Only `:invoke`.
    Invoke,
}

/// The scopes of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scope {
    /// All scopes, in the order of the documentation.
    pub const ALL: [Self; 6] = [Self::Read, Self::Edit, Self::Auditor, Self::Operate, Self::Admin, Self::Invoke];

    /// The word of the API and of the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Edit => "edit",
            Self::Auditor => "auditor",
            Self::Operate => "operate",
            Self::Admin => "admin",
            Self::Invoke => "invoke",
        }
    }

    /// Returns the scope of a word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word)
    }

    /// Whether a key with this scope may call a route that requires `required`.
    #[must_use]
    pub fn permits(self, required: Self) -> bool {
        match self {
            Self::Read => required == Self::Read,
            Self::Edit => matches!(required, Self::Read | Self::Edit),
            Self::Auditor => matches!(required, Self::Read | Self::Auditor),
            Self::Operate => matches!(required, Self::Read | Self::Auditor | Self::Operate),
            Self::Admin => required != Self::Invoke,
            Self::Invoke => required == Self::Invoke,
        }
    }

    fn bit(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Edit => 1 << 1,
            Self::Auditor => 1 << 2,
            Self::Operate => 1 << 3,
            Self::Admin => 1 << 4,
            Self::Invoke => 1 << 5,
        }
    }
}

impl Scopes {
    /// The scope of a key that has no others.
    #[must_use]
    pub fn of_kind(kind: Kind, role: Option<Role>) -> Self {
        let scope = match (kind, role) {
            (Kind::Admin, _) => Scope::Admin,
            (Kind::Scheduler, _) => Scope::Invoke,
            (Kind::Team, Some(Role::Editor)) => Scope::Edit,
            (Kind::Team, Some(Role::Viewer) | None) => Scope::Read,
        };
        Self(scope.bit())
    }

    /// Returns these of the named scopes that `self` permits.
    #[must_use]
    pub fn limited_to(self, named: impl IntoIterator<Item = Scope>) -> Self {
        Self(named.into_iter().filter(|scope| self.permits(*scope)).fold(0, |bits, scope| bits | scope.bit()))
    }

    /// Whether one of them permits a route that requires `required`.
    #[must_use]
    pub fn permits(self, required: Scope) -> bool {
        self.iter().any(|scope| scope.permits(required))
    }

    /// The scopes, in the order of the documentation.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.0 & scope.bit() != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permitted(scopes: Scopes) -> String {
        let words: Vec<_> = Scope::ALL.into_iter().filter(|scope| scopes.permits(*scope)).map(Scope::as_str).collect();
        words.join(" ")
    }

    #[test]
    fn kinds_and_roles_have_their_scopes() {
        assert_eq!(permitted(Scopes::of_kind(Kind::Admin, None)), "read edit auditor operate admin");
        assert_eq!(permitted(Scopes::of_kind(Kind::Team, Some(Role::Editor))), "read edit");
        assert_eq!(permitted(Scopes::of_kind(Kind::Team, Some(Role::Viewer))), "read");
        assert_eq!(permitted(Scopes::of_kind(Kind::Scheduler, None)), "invoke");
    }

    /// A stored scope above the kind or the role of its key counts as none.
    #[test]
    fn scopes_only_narrow_a_key() {
        let admin = Scopes::of_kind(Kind::Admin, None);
        assert_eq!(permitted(admin.limited_to([Scope::Auditor])), "read auditor");
        assert_eq!(permitted(admin.limited_to([Scope::Edit, Scope::Operate])), "read edit auditor operate");
        assert_eq!(permitted(admin.limited_to([Scope::Invoke])), "");
        let viewer = Scopes::of_kind(Kind::Team, Some(Role::Viewer));
        assert_eq!(permitted(viewer.limited_to([Scope::Edit, Scope::Admin])), "");
        for scope in Scope::ALL {
            assert_eq!(Scope::parse(scope.as_str()), Some(scope));
        }
    }
}
