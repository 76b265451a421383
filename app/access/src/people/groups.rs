//! Step 1 of 7: what the groups of a person permit. An operator writes the rules; a person has the roles of all groups.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use crate::rights::Role;

/// How many rules there may be.
const MOST_RULES: usize = 10_000;

/// One rule as the operator writes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupRule {
    /// The group, exactly as the provider sends it.
    pub group: String,
    /// The role of its members.
    pub role: GroupRole,
    /// The name of the team in which they have it.
    pub team: Option<String>,
    /// Or the id of this team.
    pub team_id: Option<i64>,
}

/// The role of the members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupRole {
    /// Read the data of a team.
    Viewer,
    /// Read and write the data of a team.
    Editor,
    /// Everything except `:invoke`, as an admin key.
    Admin,
}

/// A team, as a rule names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TeamName {
    /// By its name.
    Named(String),
    /// By its id.
    Numbered(i64),
}

/// What groups permit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// Everything that an admin key permits.
    pub is_admin: bool,
    /// A role in each of these teams.
    pub teams: BTreeMap<TeamName, Role>,
}

/// The rules of all groups.
#[derive(Clone, Debug, Default)]
pub struct Groups(HashMap<String, Grants>);

impl Groups {
    /// Checks the rules.
    ///
    /// # Errors
    /// Returns a sentence about the first rule that is not valid.
    pub fn of_rules(rules: Vec<GroupRule>) -> Result<Self, String> {
        if rules.len() > MOST_RULES {
            return Err(format!("there are more than {MOST_RULES} rules"));
        }
        let mut groups: HashMap<String, Grants> = HashMap::new();
        for rule in rules {
            let group = rule.group.clone();
            if group.is_empty() {
                return Err("a rule has an empty group".to_owned());
            }
            let grants = Grants::of_rule(rule).map_err(|detail| format!("group {group:?}: {detail}"))?;
            groups.entry(group).or_default().add(&grants);
        }
        Ok(Self(groups))
    }

    /// What the groups of a person permit together. An unknown group permits nothing.
    #[must_use]
    pub fn grants_of<'a>(&self, groups: impl IntoIterator<Item = &'a String>) -> Grants {
        let mut together = Grants::default();
        groups.into_iter().filter_map(|group| self.0.get(group)).for_each(|grants| together.add(grants));
        together
    }
}

impl Grants {
    fn of_rule(rule: GroupRule) -> Result<Self, &'static str> {
        let team = match (rule.team, rule.team_id) {
            (Some(name), None) => Some(TeamName::Named(name)),
            (None, Some(id)) => Some(TeamName::Numbered(id)),
            (None, None) => None,
            (Some(_), Some(_)) => return Err("write team or team_id, not both"),
        };
        let role = match rule.role {
            GroupRole::Viewer => Role::Viewer,
            GroupRole::Editor => Role::Editor,
            GroupRole::Admin if team.is_some() => return Err("an admin has no team: leave team and team_id out"),
            GroupRole::Admin => return Ok(Self { is_admin: true, teams: BTreeMap::new() }),
        };
        let team = team.ok_or("a viewer or editor needs team or team_id")?;
        Ok(Self { is_admin: false, teams: BTreeMap::from([(team, role)]) })
    }

    fn add(&mut self, other: &Self) {
        self.is_admin |= other.is_admin;
        for (team, role) in &other.teams {
            let own = self.teams.entry(team.clone()).or_insert(*role);
            *own = higher_role(*own, *role);
        }
    }
}

/// The role that permits more.
#[must_use]
pub fn higher_role(one: Role, other: Role) -> Role {
    if one == Role::Viewer { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(group: &str, role: GroupRole, team: Option<&str>, team_id: Option<i64>) -> GroupRule {
        GroupRule { group: group.into(), role, team: team.map(str::to_owned), team_id }
    }

    #[test]
    fn several_groups_permit_their_union() {
        let groups = Groups::of_rules(vec![
            rule("all", GroupRole::Viewer, Some("pay"), None),
            rule("all", GroupRole::Viewer, None, Some(7)),
            rule("devs", GroupRole::Editor, Some("pay"), None),
            rule("ops", GroupRole::Admin, None, None),
        ]);
        let groups = groups.unwrap();
        let of = |names: &[&str]| groups.grants_of(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["unknown", "ALL", ""]), Grants::default());
        assert_eq!(of(&["all"]).teams[&TeamName::Named("pay".into())], Role::Viewer);
        for order in [["all", "devs"], ["devs", "all"]] {
            let both = of(&order);
            assert_eq!(both.teams[&TeamName::Named("pay".into())], Role::Editor);
            assert_eq!(both.teams[&TeamName::Numbered(7)], Role::Viewer, "team by team");
            assert!(!both.is_admin);
        }
        assert!(of(&["all", "ops"]).is_admin);
    }

    #[test]
    fn rules_that_say_too_little_are_refused() {
        for wrong in [
            rule("g", GroupRole::Viewer, None, None),
            rule("g", GroupRole::Editor, Some("a"), Some(1)),
            rule("g", GroupRole::Admin, Some("a"), None),
            rule("", GroupRole::Admin, None, None),
        ] {
            assert!(Groups::of_rules(vec![wrong.clone()]).is_err(), "{wrong:?}");
        }
    }
}
