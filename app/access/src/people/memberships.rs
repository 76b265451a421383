//! Step 1 of 7: the teams of a person, with their limits.

use std::collections::BTreeMap;

use db::PgConnection;

use super::groups::{Grants, TeamName, higher_role};
use crate::limits::TeamLimits;
use crate::rights::Role;

/// What a person may do in a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The team.
    pub team_id: i64,
    /// The role in it.
    pub role: Role,
    /// The limits that an admin has set for it.
    pub limits: TeamLimits,
}

/// Reads the teams that grants name, in the order of their ids. A team that does not exist is left out.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_memberships(db: &mut PgConnection, grants: &Grants) -> sqlx::Result<Vec<Membership>> {
    let (mut ids, mut names) = (Vec::new(), Vec::new());
    for team in grants.teams.keys() {
        match team {
            TeamName::Numbered(id) => ids.push(*id),
            TeamName::Named(name) => names.push(name.clone()),
        }
    }
    let rows = sqlx::query!(
        r#"
        -- the teams of a person, by their ids and names, with the limits of requests in flight
        SELECT t.id AS "id!", t.name AS "name!", l.requests_in_flight AS "requests_in_flight?", l.edits_in_flight AS "edits_in_flight?",
               l.lists_in_flight AS "lists_in_flight?"
          FROM teams t LEFT JOIN team_limits l ON l.team_id = t.id
         WHERE t.id = ANY($1) OR t.name = ANY($2)
        "#,
        &ids,
        &names,
    )
    .fetch_all(db)
    .await?;
    let mut memberships = BTreeMap::new();
    for row in rows {
        let limits = TeamLimits {
            requests_in_flight: row.requests_in_flight,
            edits_in_flight: row.edits_in_flight,
            lists_in_flight: row.lists_in_flight,
            ..TeamLimits::default()
        };
        // A rule may name the team by its id, and another one by its name.
        let by_id = grants.teams.get(&TeamName::Numbered(row.id)).copied();
        let by_name = grants.teams.get(&TeamName::Named(row.name)).copied();
        let role = match (by_id, by_name) {
            (Some(one), Some(other)) => higher_role(one, other),
            (Some(role), None) | (None, Some(role)) => role,
            (None, None) => continue,
        };
        memberships.insert(row.id, Membership { team_id: row.id, role, limits });
    }
    Ok(memberships.into_values().collect())
}
