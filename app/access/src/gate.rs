//! Steps 1 and 7 of 7: which keys are valid, and how often they may be used.
//!
//! An active key is cached for a few seconds, so that a duplicate fire reads no database and a revoked key is soon
//! refused. Invalid keys are rate-limited by address; scheduler keys never are.

pub mod people;

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use db::PgPool;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use moka::future::Cache;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;
use workflows::audit::Edit;

use crate::in_flight::{Counted, Full, InFlight, Place};
use crate::keys::{Key, Kind, Role, verify_key};
use crate::limits::TeamLimits;
use crate::people::signed_in::{KnownTokens, PersonOfCaller};

/// How long a key is cached without reading the database.
const BELIEVED_FOR: Duration = Duration::from_secs(4);
const _: () = assert!(BELIEVED_FOR.as_secs() < 5, "a revoked key opens nothing after five seconds");

/// The authenticated caller.
#[derive(Clone, Debug)]
pub struct Caller {
    id: Uuid,
    prefix: String,
    /// What its key gives access to.
    pub kind: Kind,
    /// The team that the caller is restricted to; `None` for an admin.
    pub team_id: Option<i64>,
    /// The permissions of its team key; `None` for any other key.
    pub role: Option<Role>,
    /// The limits of its team, with the defaults of the operator.
    limits: TeamLimits,
    /// The person, if it has a token instead of a key.
    person: Option<PersonOfCaller>,
}

/// What a request does to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It reads an object, or computes.
    Read,
    /// It reads many rows.
    List,
    /// It writes.
    Edit,
}

/// The places of one request among those in progress, until they are dropped.
#[derive(Debug)]
pub struct Places {
    /// Among all requests of its key and of its team.
    pub requests: Vec<Place>,
    /// Among the edits or the lists of its team.
    pub work: Option<Place>,
}

/// The limits of keys, addresses and teams; 0 = no limit.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests a second for one admin or team key.
    pub key_requests_per_sec: u32,
    /// Unknown or revoked keys a minute that one address may try.
    pub bad_keys_per_min: u32,
    /// Requests of one admin or team key in progress on this instance.
    pub key_requests_in_flight: i64,
    /// The limits of a team for which no admin has set others.
    pub team: TeamLimits,
}

/// The decision about the key of a request.
#[derive(Clone, Debug)]
pub enum Admission {
    /// The key is valid.
    Admitted(Caller),
    /// The key is valid, but has reached its rate limit.
    TooManyRequests,
    /// The key is unknown or revoked.
    Unknown,
    /// The key is unknown or revoked, and its address has tried too many such keys.
    TooManyUnknown,
}

impl Caller {
    /// The actor, time and trace for the audit log.
    #[must_use]
    pub fn edit_at(&self, now: DateTime<Utc>, traceparent: String) -> Edit {
        Edit { actor: self.actor(), now, traceparent: Some(traceparent) }
    }

    fn of_key(key: Key, limits: TeamLimits) -> Self {
        Self {
            id: key.id,
            prefix: key.prefix,
            kind: key.kind,
            team_id: key.team_id,
            role: key.role,
            limits,
            person: None,
        }
    }
}

/// Caches the keys that were used recently, and counts the invalid keys of each address.
#[derive(Clone)]
pub struct Gate {
    believed: Cache<[u8; 32], Option<Caller>>,
    bad: Option<Arc<DefaultKeyedRateLimiter<IpAddr>>>,
    good: Option<Arc<DefaultKeyedRateLimiter<Uuid>>>,
    in_flight: InFlight,
    tokens: KnownTokens,
    limits: Limits,
}

impl Gate {
    /// A gate with these limits and an empty cache.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            believed: Cache::builder().max_capacity(10_000).time_to_live(BELIEVED_FOR).build(),
            bad: NonZeroU32::new(limits.bad_keys_per_min).map(|n| Arc::new(RateLimiter::keyed(Quota::per_minute(n)))),
            good: NonZeroU32::new(limits.key_requests_per_sec)
                .map(|n| Arc::new(RateLimiter::keyed(Quota::per_second(n)))),
            in_flight: InFlight::default(),
            tokens: KnownTokens::kept_for(BELIEVED_FOR),
            limits,
        }
    }

    /// Empties the cache of this instance at once.
    pub fn forget_all(&self) {
        self.believed.invalidate_all();
        self.tokens.forget_all();
    }

    /// Removes idle entries of the limiters; called periodically.
    pub fn remove_idle_entries(&self) {
        self.bad.iter().for_each(|limiter| limiter.retain_recent());
        self.good.iter().for_each(|limiter| limiter.retain_recent());
    }

    /// Decides whether the key that the client at `peer` sent is valid now.
    ///
    /// # Errors
    /// Fails if the database does not answer.
    pub async fn admit_key(
        &self,
        pool: &PgPool,
        presented: &str,
        peer: IpAddr,
        now: DateTime<Utc>,
    ) -> Result<Admission, Arc<sqlx::Error>> {
        // By its digest, so that the cache has no key.
        let looked_up = self.believed.try_get_with(Sha256::digest(presented).into(), async {
            let mut connection = pool.acquire().await?;
            let found = verify_key(&mut connection, presented, now).await?;
            Ok::<_, sqlx::Error>(found.map(|(key, own)| Caller::of_key(key, own.or(self.limits.team))))
        });
        let Some(caller) = looked_up.await? else { return Ok(self.refuse(peer)) };
        if caller.kind != Kind::Scheduler
            && self.good.as_ref().is_some_and(|limiter| limiter.check_key(&caller.id).is_err())
        {
            return Ok(Admission::TooManyRequests);
        }
        Ok(Admission::Admitted(caller))
    }

    /// Counts a request of this caller while its places exist. An admin belongs to no team, so only its key is counted.
    ///
    /// # Errors
    /// Fails if the caller's key or team has as many in progress as it may have.
    pub fn take_places(&self, caller: &Caller, work: Work) -> Result<Places, Full> {
        let of_key = Some(self.limits.key_requests_in_flight);
        let mut requests = vec![self.in_flight.take_place(Counted::Key(caller.id), of_key)?];
        let Some(team_id) = caller.team_id else { return Ok(Places { requests, work: None }) };
        let limits = &caller.limits;
        requests.push(self.in_flight.take_place(Counted::Team(team_id), limits.requests_in_flight)?);
        let work = match work {
            Work::Read => None,
            Work::List => Some(self.in_flight.take_place(Counted::Lists(team_id), limits.lists_in_flight)?),
            Work::Edit => Some(self.in_flight.take_place(Counted::Edits(team_id), limits.edits_in_flight)?),
        };
        Ok(Places { requests, work })
    }

    /// The limits of keys, addresses and teams.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    fn refuse(&self, peer: IpAddr) -> Admission {
        match &self.bad {
            Some(limiter) if limiter.check_key(&peer).is_err() => Admission::TooManyUnknown,
            _ => Admission::Unknown,
        }
    }
}
