//! Steps 1 and 7 of 7: which keys are valid, and how often they may be used.
//!
//! An active key is cached for a few seconds, so that a duplicate fire reads no database and a revoked key is soon
//! refused. Its end and its networks are checked with each request. A text that is no key, for example because its
//! checksum is wrong, reads no database. Invalid keys are rate-limited by address; scheduler keys never are.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use db::PgPool;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use ipnet::IpNet;
use moka::future::Cache;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;
use workflows::audit::Edit;

use crate::in_flight::{Counted, Full, InFlight, Place};
use crate::key::Key;
use crate::key_text::KeyText;
use crate::key_uses::KeyUses;
use crate::keys::verify_key;
use crate::limits::TeamLimits;
use crate::rights::{Kind, Role, Scope, Scopes};

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
    scopes: Scopes,
    expires_on: Option<DateTime<Utc>>,
    allowed_cidrs: Option<Arc<[IpNet]>>,
    /// The limits of its team, with the defaults of the operator.
    limits: TeamLimits,
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
    /// The key has expired. Only a client that has its secret is told so.
    Expired,
    /// The key is valid, but not from the address of the client.
    AddressNotAllowed,
    /// The key is unknown or revoked.
    Unknown,
    /// The key is unknown or revoked, and its address has tried too many such keys.
    TooManyUnknown,
}

impl Caller {
    /// The actor, time and trace for the audit log.
    #[must_use]
    pub fn edit_at(&self, now: DateTime<Utc>, traceparent: String) -> Edit {
        Edit { actor: format!("key:{}", self.prefix), now, traceparent: Some(traceparent) }
    }

    /// Whether its key permits a route that requires this scope.
    #[must_use]
    pub fn permits(&self, required: Scope) -> bool {
        self.scopes.permits(required)
    }

    /// The id of its key.
    #[must_use]
    pub fn key_id(&self) -> Uuid {
        self.id
    }

    /// Why its key is not accepted from this address now.
    fn find_refusal(&self, peer: IpAddr, now: DateTime<Utc>) -> Option<Admission> {
        // An IPv4 client of a socket for both families has an address such as ::ffff:10.1.2.3.
        let peer = peer.to_canonical();
        if self.allowed_cidrs.as_ref().is_some_and(|allowed| !allowed.iter().any(|network| network.contains(&peer))) {
            return Some(Admission::AddressNotAllowed);
        }
        self.expires_on.is_some_and(|expires_on| expires_on <= now).then_some(Admission::Expired)
    }

    fn of_key(key: Key, limits: TeamLimits) -> Self {
        Self {
            id: key.id,
            prefix: key.prefix,
            kind: key.kind,
            team_id: key.team_id,
            role: key.role,
            scopes: key.scopes,
            expires_on: key.expires_on,
            allowed_cidrs: key.allowed_cidrs.map(Arc::from),
            limits,
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
    uses: KeyUses,
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
            uses: KeyUses::default(),
            limits,
        }
    }

    /// Empties the cache of this instance at once.
    pub fn forget_all(&self) {
        self.believed.invalidate_all();
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
        let Some(text) = KeyText::parse(presented) else { return Ok(self.refuse(peer)) };
        // By its digest, so that the cache has no key.
        let looked_up = self.believed.try_get_with(Sha256::digest(presented).into(), async {
            let mut connection = pool.acquire().await?;
            let found = verify_key(&mut connection, &text).await?;
            Ok::<_, sqlx::Error>(found.map(|(key, own)| Caller::of_key(key, own.or(self.limits.team))))
        });
        let Some(caller) = looked_up.await? else { return Ok(self.refuse(peer)) };
        if let Some(refusal) = caller.find_refusal(peer, now) {
            return Ok(refusal);
        }
        if caller.kind != Kind::Scheduler
            && self.good.as_ref().is_some_and(|limiter| limiter.check_key(&caller.id).is_err())
        {
            return Ok(Admission::TooManyRequests);
        }
        self.uses.note(caller.id, peer.to_canonical(), now);
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

    /// Writes when and from where keys were used since the last call; called once a minute.
    ///
    /// # Errors
    /// Fails if the database cannot be reached or refuses the statement.
    pub async fn write_key_uses(&self, pool: &PgPool) -> sqlx::Result<()> {
        self.uses.write(pool).await
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
