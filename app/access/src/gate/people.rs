//! Step 1 of 7: admits a person by a verified token, with the roles of all groups, team by team.
//!
//! A caller always acts in one team, or is an admin. A person of several teams acts in the team of the object that a
//! request names (`Caller::in_team`); a list reads the teams one by one (`Caller::teams_of_list`). Otherwise the person
//! acts in one of the teams, so that code that ignores all this shows too little, never too much.

use std::net::IpAddr;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use db::PgPool;

use super::{Admission, Caller, Gate};
use crate::limits::TeamLimits;
use crate::people::groups::{Grants, Groups};
use crate::people::memberships::{Membership, read_memberships};
use crate::people::person::Person;
use crate::people::signed_in::{PersonOfCaller, SignedIn};
use crate::people::token::Claims;
use crate::rights::{Kind, Role, Scopes};

/// Of how many teams one list reads the rows at most.
pub const TEAMS_OF_A_LIST: usize = 20;

/// A list would read the rows of too many teams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyTeams;

impl Gate {
    /// Returns the decision about a token that was verified some seconds ago, if it has not ended since.
    pub async fn find_known_token(&self, token: &str, now: DateTime<Utc>) -> Option<Admission> {
        let known = self.tokens.find(token, now).await?;
        Some(self.admit_signed_in(known))
    }

    /// Decides what a person may do whose token has been verified.
    ///
    /// # Errors
    /// Fails if the database does not answer.
    pub async fn admit_person(
        &self,
        pool: &PgPool,
        token: &str,
        claims: &Claims,
        groups: &Groups,
    ) -> sqlx::Result<Admission> {
        let grants = groups.grants_of(&claims.groups);
        let signed_in = Arc::new(SignedIn {
            person: Person::of_claims(claims),
            is_admin: grants.is_admin,
            memberships: self.memberships_of(pool, &grants).await?,
            expires_on: claims.expires_on,
        });
        self.tokens.keep(token, signed_in.clone()).await;
        Ok(self.admit_signed_in(signed_in))
    }

    /// Counts a refused token as an unknown key of its address.
    #[must_use]
    pub fn refuse_token(&self, peer: IpAddr, now: DateTime<Utc>) -> Admission {
        let admission = if self.take_try(peer) { Admission::Unknown } else { Admission::TooManyUnknown };
        self.count_refusal(&admission, peer, now);
        admission
    }

    pub(super) async fn memberships_of(&self, pool: &PgPool, grants: &Grants) -> sqlx::Result<Vec<Membership>> {
        // An admin is no member, and a person without a role reads no database.
        if grants.is_admin || grants.teams.is_empty() {
            return Ok(Vec::new());
        }
        let mut memberships = read_memberships(&mut *pool.acquire().await?, grants).await?;
        for membership in &mut memberships {
            membership.limits = membership.limits.or(self.limits.team);
        }
        Ok(memberships)
    }

    fn admit_signed_in(&self, signed_in: Arc<SignedIn>) -> Admission {
        let Some(caller) = Caller::of_person(signed_in) else { return Admission::NoRole };
        let is_over = self.good.as_ref().is_some_and(|limiter| limiter.check_key(&caller.id).is_err());
        if is_over { Admission::TooManyRequests } else { Admission::Admitted(caller) }
    }
}

impl Caller {
    /// A person: an admin, or a member of teams. `None` without a role.
    pub(super) fn of_person(signed_in: Arc<SignedIn>) -> Option<Self> {
        if signed_in.is_admin {
            let person = PersonOfCaller { signed_in, has_chosen: true };
            return Some(Self::of_role(person, Kind::Admin, None, TeamLimits::default()));
        }
        let memberships = &signed_in.memberships;
        // One in which the person may write, if there is one: a route without an object decides by it whether it is open.
        let writes = |membership: &&Membership| membership.role == Role::Editor;
        let first = *memberships.iter().find(writes).or(memberships.first())?;
        let has_chosen = memberships.len() == 1;
        Some(Self::of_membership(PersonOfCaller { signed_in, has_chosen }, first))
    }

    fn of_membership(person: PersonOfCaller, membership: Membership) -> Self {
        Self::of_role(person, Kind::Team, Some((membership.team_id, membership.role)), membership.limits)
    }

    fn of_role(person: PersonOfCaller, kind: Kind, in_team: Option<(i64, Role)>, limits: TeamLimits) -> Self {
        Self {
            id: person.signed_in.person.id,
            prefix: Arc::default(),
            name: person.signed_in.person.name.as_str().into(),
            address: None,
            kind,
            team_id: in_team.map(|(team_id, _)| team_id),
            role: in_team.map(|(_, role)| role),
            scopes: Scopes::of_kind(kind, in_team.map(|(_, role)| role)),
            // Those of the token are checked before.
            expires_on: None,
            allowed_cidrs: None,
            limits,
            person: Some(person),
        }
    }

    /// The actor of the audit log.
    pub(super) fn actor(&self) -> String {
        match &self.person {
            Some(person) => person.signed_in.person.actor.clone(),
            None => format!("key:{}", self.prefix),
        }
    }

    /// Whether the request has yet to choose one of several teams.
    #[must_use]
    pub fn has_to_choose(&self) -> bool {
        !self.teams_to_choose().is_empty()
    }

    /// The same caller, acting in this team; `None` if it has no role there. An admin acts in every team.
    #[must_use]
    pub fn in_team(&self, team_id: i64) -> Option<Self> {
        if !self.has_to_choose() {
            return self.team_id.is_none_or(|own| own == team_id).then(|| self.clone());
        }
        let chosen = *self.teams_to_choose().iter().find(|membership| membership.team_id == team_id)?;
        let signed_in = self.person.as_ref()?.signed_in.clone();
        let chosen = Self::of_membership(PersonOfCaller { signed_in, has_chosen: true }, chosen);
        Some(Self { address: self.address, ..chosen })
    }

    /// Whether it is a person, not a key.
    #[must_use]
    pub fn is_person(&self) -> bool {
        self.person.is_some()
    }

    /// The teams whose rows a list reads, one by one; `None` stands for all teams. `requested` is the team that the
    /// request names. No team: the list is empty, like that of a team that does not exist.
    ///
    /// # Errors
    /// Fails if the caller belongs to more than [`TEAMS_OF_A_LIST`] teams and the request names none.
    pub fn teams_of_list(&self, requested: Option<i64>) -> Result<Vec<Option<i64>>, TooManyTeams> {
        match (requested, self.teams_to_choose()) {
            (Some(requested), _) => Ok(self.in_team(requested).map(|_| Some(requested)).into_iter().collect()),
            (None, []) => Ok(vec![self.team_id]),
            (None, teams) if teams.len() > TEAMS_OF_A_LIST => Err(TooManyTeams),
            (None, teams) => Ok(teams.iter().map(|membership| Some(membership.team_id)).collect()),
        }
    }

    fn teams_to_choose(&self) -> &[Membership] {
        self.person.as_ref().map_or(&[], PersonOfCaller::teams_to_choose)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn member(team_id: i64, role: Role) -> Membership {
        Membership { team_id, role, limits: TeamLimits::default() }
    }

    fn caller(is_admin: bool, memberships: Vec<Membership>) -> Option<Caller> {
        let person = Person { id: Uuid::nil(), actor: "person:ann (https://a 1)".into(), name: "ann".into() };
        let expires_on = DateTime::default();
        Caller::of_person(Arc::new(SignedIn { person, is_admin, memberships, expires_on }))
    }

    #[test]
    fn persons_act_in_one_team_at_a_time() {
        let both = caller(false, vec![member(1, Role::Viewer), member(2, Role::Editor)]).unwrap();
        assert_eq!((both.kind, both.team_id, both.role), (Kind::Team, Some(2), Some(Role::Editor)));
        let first = both.in_team(1).unwrap();
        assert_eq!((first.team_id, first.role, first.actor()), (Some(1), Some(Role::Viewer), both.actor()));
        assert!(first.in_team(2).is_none(), "a request chooses once");
        assert!(both.in_team(3).is_none());
        assert_eq!(both.teams_of_list(None), Ok(vec![Some(1), Some(2)]));
        assert_eq!(both.teams_of_list(Some(1)), Ok(vec![Some(1)]));
        assert_eq!(both.teams_of_list(Some(3)), Ok(vec![]));
        assert_eq!(first.teams_of_list(None), Ok(vec![Some(1)]));
        assert_eq!(first.teams_of_list(Some(2)), Ok(vec![]));
    }

    /// `None` as a team would be every team.
    #[test]
    fn only_admins_act_without_a_team() {
        assert!(caller(false, vec![]).is_none());
        let admin = caller(true, vec![]).unwrap();
        assert_eq!((admin.kind, admin.team_id, admin.role), (Kind::Admin, None, None));
        assert_eq!(admin.teams_of_list(None), Ok(vec![None]));
        assert_eq!(admin.teams_of_list(Some(9)), Ok(vec![Some(9)]));
        let viewer = caller(false, vec![member(1, Role::Viewer), member(2, Role::Viewer)]).unwrap();
        assert_eq!((viewer.team_id, viewer.role), (Some(1), Some(Role::Viewer)));
        let many = caller(false, (0..21).map(|team| member(team, Role::Viewer)).collect()).unwrap();
        assert_eq!(many.teams_of_list(None), Err(TooManyTeams));
        assert_eq!(many.teams_of_list(Some(20)), Ok(vec![Some(20)]));
    }
}
