//! Step 1 of 7: admits the holder of a session. It may do what its key, or the groups of its person, permit now.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use uuid::Uuid;
use workflows::audit::Edit;

use super::{Admission, Caller, Gate, KnownSession};
use crate::keys::find_active_key;
use crate::people::groups::Groups;
use crate::people::person::Person;
use crate::people::signed_in::SignedIn;
use crate::people::token::Claims;
use crate::sessions::{End, Holder, digest_of, find_end, find_session, list_open_digests};

/// A try to sign in by a link, or by a code of the provider. If it is dropped, it has failed and is counted, also because the
/// client has disconnected or the database has failed.
#[must_use]
pub struct SignInTry<'a> {
    gate: &'a Gate,
    peer: IpAddr,
    now: DateTime<Utc>,
    has_succeeded: bool,
}

impl SignInTry<'_> {
    /// Returns the try to its address: the link or the code was good.
    pub fn succeed(mut self) {
        self.has_succeeded = true;
        self.gate.bad_codes.iter().for_each(|bad| bad.return_try(self.peer));
    }
}

impl Drop for SignInTry<'_> {
    fn drop(&mut self) {
        if !self.has_succeeded {
            self.gate.failed_logins.count(self.peer, self.now);
        }
    }
}

impl Gate {
    /// Decides what the holder of a session may do; `None` if the session has ended, or its key was revoked.
    ///
    /// # Errors
    /// Fails if the database does not answer.
    pub async fn admit_session(
        &self,
        pool: &PgPool,
        text: &str,
        groups: Option<&Groups>,
        peer: IpAddr,
        now: DateTime<Utc>,
    ) -> Result<Option<(Uuid, Admission)>, Arc<sqlx::Error>> {
        let decided = self.decide_session(pool, text, groups, peer, now).await?;
        match &decided {
            Ok((_, admission)) => self.count_refusal(admission, peer, now),
            Err(End::Refused) => self.failed_logins.count(peer, now),
            // Each open tab would be one, and each morning.
            Err(End::Expired | End::Left) => {}
        }
        Ok(decided.ok())
    }

    /// Decides the same for an answer that is open: this is no try to sign in, so it is not counted.
    ///
    /// # Errors
    /// Fails if the database does not answer.
    pub async fn check_session(
        &self,
        pool: &PgPool,
        text: &str,
        groups: Option<&Groups>,
        peer: IpAddr,
        now: DateTime<Utc>,
    ) -> Result<Option<(Uuid, Admission)>, Arc<sqlx::Error>> {
        Ok(self.decide_session(pool, text, groups, peer, now).await?.ok())
    }

    async fn decide_session(
        &self,
        pool: &PgPool,
        text: &str,
        groups: Option<&Groups>,
        peer: IpAddr,
        now: DateTime<Utc>,
    ) -> Result<Result<(Uuid, Admission), End>, Arc<sqlx::Error>> {
        let digest = digest_of(text);
        let known = match self.sessions.get(&digest).await {
            Some(known) => known,
            None => {
                // As an unknown key: a flood of invented cookies reads no database, and no session waits for its end.
                let has_try = self.take_try(peer);
                if !has_try && !self.is_open_session(pool, digest, now).await? {
                    // No session has this id.
                    return Ok(Ok((Uuid::nil(), Admission::TooManyUnknown)));
                }
                let read = Box::pin(self.read_session(pool, digest, groups, now));
                let known = self.sessions.try_get_with(digest, read).await?;
                // A cookie that has expired was a session: each browser of an office has one in the morning. Of those that its
                // holder has ended, a key can make any number, and each would read the database.
                if has_try && matches!(known, Ok(_) | Err(End::Expired)) {
                    self.bad.iter().for_each(|bad| bad.return_try(peer));
                }
                known
            }
        };
        let session = match known {
            Ok(session) if session.expires_on > now => session,
            Ok(_) => return Ok(Err(End::Expired)),
            Err(reason) => return Ok(Err(reason)),
        };
        let Some(caller) = session.caller else { return Ok(Ok((session.id, Admission::NoRole))) };
        if let Some(refusal) = caller.find_refusal(peer, now) {
            return Ok(Ok((session.id, refusal)));
        }
        let is_over = self.good.as_ref().is_some_and(|limiter| limiter.check_key(&caller.id).is_err());
        if !is_over && !caller.is_person() {
            self.uses.note(caller.id, peer.to_canonical(), now);
        }
        Ok(Ok((session.id, if is_over { Admission::TooManyRequests } else { Admission::Admitted(caller) })))
    }

    /// Takes a try of this address for a link, or for a code of the provider; without one, neither is looked up.
    pub fn begin_sign_in(&self, peer: IpAddr, now: DateTime<Utc>) -> Option<SignInTry<'_>> {
        if self.bad_codes.as_ref().is_none_or(|bad| bad.take_try(peer, Instant::now())) {
            return Some(SignInTry { gate: self, peer, now, has_succeeded: false });
        }
        self.count_refusal(&Admission::TooManyUnknown, peer, now);
        None
    }

    /// Whether this is the digest of a session that was open some seconds ago; as [`Self::is_active`] of a key.
    async fn is_open_session(
        &self,
        pool: &PgPool,
        digest: [u8; 32],
        now: DateTime<Utc>,
    ) -> Result<bool, Arc<sqlx::Error>> {
        let read = self.open_sessions.try_get_with((), async {
            let mut connection = pool.acquire().await?;
            Ok::<_, sqlx::Error>(Arc::new(list_open_digests(&mut connection, now).await?))
        });
        Ok(read.await?.contains(&digest))
    }

    /// A session, and the edit with which its holder ends it: it may do that whatever else it may do now.
    ///
    /// # Errors
    /// Fails if the database does not answer.
    pub async fn edit_of_holder(
        &self,
        db: &mut PgConnection,
        text: &str,
        peer: IpAddr,
        now: DateTime<Utc>,
        traceparent: String,
    ) -> sqlx::Result<Option<(Uuid, Edit)>> {
        let Some((id, holder, _)) = find_session(db, digest_of(text), now).await? else { return Ok(None) };
        let (actor, name) = match holder {
            Holder::Key(key_id) => match self.caller_of_key(db, key_id).await? {
                Some(caller) => (caller.actor(), caller.name.to_string()),
                None => return Ok(None),
            },
            Holder::Person(claims) => {
                let person = Person::of_claims(&claims);
                (person.actor, person.name)
            }
        };
        let edit =
            Edit { actor, actor_name: Some(name), source_address: Some(peer), now, traceparent: Some(traceparent) };
        Ok(Some((id, edit)))
    }

    async fn read_session(
        &self,
        pool: &PgPool,
        digest: [u8; 32],
        groups: Option<&Groups>,
        now: DateTime<Utc>,
    ) -> sqlx::Result<Result<KnownSession, End>> {
        let mut connection = pool.acquire().await?;
        let Some((id, holder, expires_on)) = find_session(&mut connection, digest, now).await? else {
            return Ok(Err(find_end(&mut connection, digest).await?));
        };
        let caller = match holder {
            Holder::Key(key_id) => match self.caller_of_key(&mut connection, key_id).await? {
                Some(caller) => Some(caller),
                None => return Ok(Err(End::Refused)),
            },
            Holder::Person(claims) => {
                drop(connection);
                self.caller_of_person(pool, &claims, groups).await?
            }
        };
        Ok(Ok(KnownSession { id, expires_on, caller }))
    }

    /// The caller of a key; `None` if it was revoked.
    ///
    /// # Errors
    /// Fails if the database does not answer.
    pub async fn caller_of_key(&self, db: &mut PgConnection, key_id: Uuid) -> sqlx::Result<Option<Caller>> {
        let found = find_active_key(db, key_id).await?;
        Ok(found.map(|(key, own)| Caller::of_key(key, own.or(self.limits.team))))
    }

    /// The caller that a person is; `None` without a role, also if the operator has removed the provider since.
    ///
    /// # Errors
    /// Fails if the database does not answer.
    pub async fn caller_of_person(
        &self,
        pool: &PgPool,
        claims: &Claims,
        groups: Option<&Groups>,
    ) -> sqlx::Result<Option<Caller>> {
        let Some(groups) = groups else { return Ok(None) };
        let grants = groups.grants_of(&claims.groups);
        let signed_in = Arc::new(SignedIn {
            person: Person::of_claims(claims),
            is_admin: grants.is_admin,
            memberships: self.memberships_of(pool, &grants).await?,
            expires_on: claims.expires_on,
        });
        Ok(Caller::of_person(signed_in))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Limits;
    use crate::limits::TeamLimits;

    /// A client that disconnects before its answer must not be left out: then its request is dropped.
    #[test]
    fn all_but_good_links_and_codes_are_counted() {
        let gate = Gate::new(Limits {
            key_requests_per_sec: 0,
            bad_keys_per_min: 2,
            key_requests_in_flight: 0,
            address_requests_in_flight: 0,
            requests_in_flight: 0,
            team: TeamLimits::default(),
        });
        let (peer, now) = (IpAddr::from([192, 0, 2, 7]), DateTime::default());
        let failures = || gate.failed_logins().counted().iter().map(|(_, failures)| failures).sum::<i64>();
        gate.begin_sign_in(peer, now).unwrap().succeed();
        assert_eq!(failures(), 0);
        for nth in 1..=2 {
            drop(gate.begin_sign_in(peer, now).unwrap());
            assert_eq!(failures(), nth);
        }
        assert!(gate.begin_sign_in(peer, now).is_none(), "the good one has returned its try");
        assert_eq!(failures(), 3, "also one that is not looked up");
    }
}
