//! Keys in words.

#![expect(clippy::trivially_copy_pass_by_ref, reason = "templates pass references")]

use api_types::keys::{KeyView, Kind, Role, Scope};
use chrono::{DateTime, Utc};

use crate::words::Badge;

/// What a key gives access to.
pub(in crate::pages::admin) fn kind_words(kind: &Kind) -> &'static str {
    match kind {
        Kind::Admin => "all teams",
        Kind::Team => "one team",
        Kind::Scheduler => "fires only",
    }
}

/// A role.
pub(in crate::pages::admin) fn role_words(role: &Role) -> &'static str {
    match role {
        Role::Viewer => "viewer",
        Role::Editor => "editor",
    }
}

/// The names of scopes, as the API has them.
pub(in crate::pages::admin) fn scope_names(scopes: &[Scope]) -> String {
    let names: Vec<_> = scopes.iter().map(scope_name).collect();
    names.join(", ")
}

/// The name of a scope, as the API has it.
pub(in crate::pages::admin) fn scope_name(scope: &Scope) -> &'static str {
    match scope {
        Scope::Read => "read",
        Scope::Edit => "edit",
        Scope::Auditor => "auditor",
        Scope::Operate => "operate",
        Scope::Admin => "admin",
        Scope::Invoke => "invoke",
    }
}

/// Whether a key is accepted.
fn is_active(key: &KeyView, now: &DateTime<Utc>) -> bool {
    key.revoked_on.is_none() && key.expires_on.is_none_or(|expires_on| expires_on > *now)
}

/// The state of a key.
pub(in crate::pages::admin) fn badge(key: &KeyView, now: &DateTime<Utc>) -> Badge {
    let (words, class, mark) = match (key.revoked_on, is_active(key, now), key.rotated_into) {
        (Some(_), ..) => ("revoked", "quiet", "–"),
        (None, false, _) => ("expired", "quiet", "–"),
        (None, true, Some(_)) => ("rotated, still accepted", "warn", "↻"),
        (None, true, None) => ("active", "good", "●"),
    };
    Badge { words, class, mark }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn keys_say_whether_they_are_accepted() {
        let now: DateTime<Utc> = "2026-03-29T12:00:00Z".parse().unwrap();
        let mut key = KeyView {
            id: Uuid::nil(),
            prefix: "cbt_1".into(),
            kind: Kind::Admin,
            team_id: None,
            role: None,
            scopes: vec![Scope::Read, Scope::Auditor],
            name: "reader".into(),
            created_on: now,
            expires_on: None,
            allowed_cidrs: None,
            last_used_on: None,
            last_used_from: None,
            revoked_on: None,
            rotated_into: None,
        };
        assert_eq!(badge(&key, &now).words, "active");
        assert_eq!(scope_names(&key.scopes), "read, auditor");
        key.rotated_into = Some(Uuid::nil());
        assert_eq!(badge(&key, &now).words, "rotated, still accepted");
        key.expires_on = Some(now);
        assert_eq!(badge(&key, &now).words, "expired");
        key.revoked_on = Some(now);
        assert_eq!(badge(&key, &now).words, "revoked");
    }
}
