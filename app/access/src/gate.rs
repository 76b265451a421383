//! Steps 1 and 7 of 7: which keys are valid, and how often they may be used.
//!
//! An active key is cached for a few seconds, so that a duplicate fire reads no database and a revoked key is soon
//! refused. Its end and its networks are checked with each request. A text that is no key, for example because its
//! checksum is wrong, reads no database. Unknown keys are rate-limited by address, before the database is read; active
//! keys never are limited by the unknown keys that their address sends.

pub mod people;
pub mod sessions;

use std::collections::HashSet;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use db::PgPool;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use ipnet::IpNet;
use moka::future::Cache;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;
use workflows::audit::Edit;

use crate::bad_keys::BadKeys;
use crate::failed_logins::FailedLogins;
use crate::in_flight::{Counted, Full, InFlight, Place};
use crate::key::Key;
use crate::key_text::KeyText;
use crate::key_uses::KeyUses;
use crate::keys::{list_active_digests, verify_key};
use crate::limits::TeamLimits;
use crate::network::network_of;
use crate::people::signed_in::{KnownTokens, PersonOfCaller};
use crate::rights::{Kind, Role, Scope, Scopes};
use crate::sessions::End;

/// How many streams of events a key may have open on one instance.
const STREAMS_OF_A_KEY: i64 = 5;

/// Requests to the sign-in may take this part of the places of an address, and of the instance.
const SIGN_IN_PART: i64 = 8;

/// How long a key is cached without reading the database.
const BELIEVED_FOR: Duration = Duration::from_secs(4);
const _: () = assert!(BELIEVED_FOR.as_secs() < 5, "a revoked key opens nothing after five seconds");

/// For how long the digests of all active keys are cached. A new key opens something after this time, also from an
/// address that has tried too many unknown keys.
pub const ACTIVE_KEYS_FRESH_FOR: Duration = Duration::from_secs(5);

/// The authenticated caller.
#[derive(Clone, Debug)]
pub struct Caller {
    id: Uuid,
    prefix: Arc<str>,
    /// The name of its key.
    name: Arc<str>,
    /// The address of its client.
    address: Option<IpAddr>,
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
    /// The person, if it has a token instead of a key.
    person: Option<PersonOfCaller>,
}

/// Who a caller is, for itself.
#[derive(Clone, Debug)]
pub struct Identity {
    /// As the audit log names it.
    pub actor: String,
    /// The name of its key, or of the person.
    pub name: String,
    /// What it gives access to.
    pub kind: Kind,
    /// Whether it is a person with a token.
    pub is_person: bool,
    /// Its teams, with its role in each; none of an admin.
    pub teams: Vec<(i64, Role)>,
    /// What it permits.
    pub scopes: Vec<Scope>,
    /// The end of its key or token.
    pub expires_on: Option<DateTime<Utc>>,
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
    /// Unknown or revoked keys a minute that one address may try, and as many links and codes of the provider.
    pub bad_keys_per_min: u32,
    /// Requests of one admin or team key in progress on this instance.
    pub key_requests_in_flight: i64,
    /// Requests of one address in progress on this instance, without fires.
    pub address_requests_in_flight: i64,
    /// Requests in progress on this instance, without fires.
    pub requests_in_flight: i64,
    /// The limits of a team for which no admin has set others.
    pub team: TeamLimits,
}

/// The decision about the key of a request.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "it is read once, where it was made; a box would cost each request more")]
pub enum Admission {
    /// The key is valid.
    Admitted(Caller),
    /// The key is valid, but has reached its rate limit.
    TooManyRequests,
    /// The key has expired. Only a client that has its secret gets this answer.
    Expired,
    /// The key is valid, but not from the address of the client.
    AddressNotAllowed,
    /// The token is valid, but no group of the person has a role.
    NoRole,
    /// The key is unknown or revoked.
    Unknown,
    /// The key is unknown or revoked, and its address has tried too many such keys.
    TooManyUnknown,
}

/// Which connections read keys.
#[derive(Clone, Copy, Debug)]
pub struct KeyPools<'a> {
    /// Those of the purpose of the request, for its own key.
    pub of_request: &'a PgPool,
    /// Those of fires, for the digests of all keys: a fire may need them, and waits for no other purpose.
    pub fires: &'a PgPool,
}

/// What is known of a key.
#[expect(clippy::large_enum_variant, reason = "as Admission")]
enum Found {
    Active(Caller),
    Unknown,
    TooManyUnknown,
}

/// A session that was read some seconds ago.
#[derive(Clone, Debug)]
struct KnownSession {
    id: Uuid,
    expires_on: DateTime<Utc>,
    /// `None`: its person has no role.
    caller: Option<Caller>,
}

/// Why a lookup does not say whether a key is active.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error("too many unknown keys from this address")]
    TooManyUnknown,
    #[error(transparent)]
    Database(#[from] Arc<sqlx::Error>),
}

impl From<sqlx::Error> for NoAnswer {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(Arc::new(error))
    }
}

impl Caller {
    /// The public part of its key.
    #[must_use]
    pub fn prefix(&self) -> &Arc<str> {
        &self.prefix
    }

    /// Who it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        let own = self.team_id.zip(self.role).into_iter().collect();
        let (teams, expires_on) = match &self.person {
            Some(person) => {
                let memberships = person.signed_in.memberships.iter();
                let teams = memberships.map(|membership| (membership.team_id, membership.role)).collect();
                (teams, Some(person.signed_in.expires_on))
            }
            None => (own, self.expires_on),
        };
        Identity {
            actor: self.actor(),
            name: self.name.to_string(),
            kind: self.kind,
            is_person: self.is_person(),
            teams,
            scopes: self.scopes.iter().collect(),
            expires_on,
        }
    }

    /// The actor, time and trace for the audit log.
    #[must_use]
    pub fn edit_at(&self, now: DateTime<Utc>, traceparent: String) -> Edit {
        Edit {
            actor: self.actor(),
            actor_name: Some(self.name.to_string()),
            source_address: self.address,
            now,
            traceparent: Some(traceparent),
        }
    }

    /// The same caller, with the address of its client for the audit log.
    #[must_use]
    pub fn at_address(self, address: IpAddr) -> Self {
        Self { address: Some(address), ..self }
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
            prefix: key.prefix.into(),
            name: key.name.into(),
            address: None,
            kind: key.kind,
            team_id: key.team_id,
            role: key.role,
            scopes: key.scopes,
            expires_on: key.expires_on,
            allowed_cidrs: key.allowed_cidrs.map(Arc::from),
            limits,
            person: None,
        }
    }
}

/// Caches the keys that were used recently, and counts the invalid keys of each address and all that it refuses.
#[derive(Clone)]
pub struct Gate {
    believed: Cache<[u8; 32], Option<Caller>>,
    /// The digests of all active keys. They are read only if an address has no try left, and once for all of them.
    active: Cache<(), Arc<HashSet<[u8; 32]>>>,
    bad: Option<Arc<BadKeys>>,
    /// The tries of links and codes. They are others than those of keys: a program that goes on with a revoked key must not keep
    /// the people who share its address from the sign-in.
    bad_codes: Option<Arc<BadKeys>>,
    good: Option<Arc<DefaultKeyedRateLimiter<Uuid>>>,
    in_flight: InFlight,
    tokens: KnownTokens,
    /// Open sessions, and how others have ended. One whose key was revoked counts as refused.
    sessions: Cache<[u8; 32], Result<KnownSession, End>>,
    /// As `active`, of sessions.
    open_sessions: Cache<(), Arc<HashSet<[u8; 32]>>>,
    uses: KeyUses,
    failed_logins: FailedLogins,
    limits: Limits,
}

impl Gate {
    /// A gate with these limits and an empty cache.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let tries = || NonZeroU32::new(limits.bad_keys_per_min).map(|per_minute| Arc::new(BadKeys::new(per_minute)));
        Self {
            believed: Cache::builder().max_capacity(10_000).time_to_live(BELIEVED_FOR).build(),
            active: Cache::builder().max_capacity(1).time_to_live(ACTIVE_KEYS_FRESH_FOR).build(),
            bad: tries(),
            bad_codes: tries(),
            good: NonZeroU32::new(limits.key_requests_per_sec)
                .map(|n| Arc::new(RateLimiter::keyed(Quota::per_second(n)))),
            in_flight: InFlight::default(),
            tokens: KnownTokens::kept_for(BELIEVED_FOR),
            sessions: Cache::builder().max_capacity(10_000).time_to_live(BELIEVED_FOR).build(),
            open_sessions: Cache::builder().max_capacity(1).time_to_live(ACTIVE_KEYS_FRESH_FOR).build(),
            uses: KeyUses::default(),
            failed_logins: FailedLogins::default(),
            limits,
        }
    }

    /// Empties the cache of this instance at once. A dry run has changed nothing, and would make all callers read the database.
    pub fn forget_all(&self) {
        if db::is_dry_run() {
            return;
        }
        self.believed.invalidate_all();
        self.tokens.forget_all();
        self.forget_sessions();
        self.active.invalidate_all();
    }

    /// Forgets the sessions of this instance at once, because one has ended; in a dry run none has.
    pub fn forget_sessions(&self) {
        if db::is_dry_run() {
            return;
        }
        self.sessions.invalidate_all();
        self.open_sessions.invalidate_all();
    }

    /// Removes idle entries of the limiters; called periodically.
    pub fn remove_idle_entries(&self) {
        self.bad.iter().chain(&self.bad_codes).for_each(|bad| bad.remove_idle(Instant::now()));
        self.good.iter().for_each(|limiter| limiter.retain_recent());
    }

    /// Decides whether the key that the client at `peer` sent is valid now.
    ///
    /// # Errors
    /// Fails if the database does not answer.
    pub async fn admit_key(
        &self,
        pools: KeyPools<'_>,
        presented: &str,
        peer: IpAddr,
        now: DateTime<Utc>,
    ) -> Result<Admission, Arc<sqlx::Error>> {
        let admission = match self.find_caller(pools, presented, peer).await? {
            Found::Active(caller) => self.admit_active(caller, peer, now),
            Found::Unknown => Admission::Unknown,
            Found::TooManyUnknown => Admission::TooManyUnknown,
        };
        self.count_refusal(&admission, peer, now);
        Ok(admission)
    }

    /// Decides what an active key may do from this address now.
    fn admit_active(&self, caller: Caller, peer: IpAddr, now: DateTime<Utc>) -> Admission {
        if let Some(refusal) = caller.find_refusal(peer, now) {
            return refusal;
        }
        if caller.kind != Kind::Scheduler
            && self.good.as_ref().is_some_and(|limiter| limiter.check_key(&caller.id).is_err())
        {
            return Admission::TooManyRequests;
        }
        self.uses.note(caller.id, peer.to_canonical(), now);
        Admission::Admitted(caller)
    }

    /// Counts a decision that refuses what was presented.
    fn count_refusal(&self, admission: &Admission, peer: IpAddr, now: DateTime<Utc>) {
        match admission {
            Admission::Unknown | Admission::TooManyUnknown | Admission::Expired | Admission::AddressNotAllowed => {
                self.failed_logins.count(peer, now);
            }
            Admission::Admitted(_) | Admission::NoRole | Admission::TooManyRequests => {}
        }
    }

    /// What this instance has refused, until it is stored.
    #[must_use]
    pub fn failed_logins(&self) -> &FailedLogins {
        &self.failed_logins
    }

    async fn find_caller(&self, pools: KeyPools<'_>, presented: &str, peer: IpAddr) -> Result<Found, Arc<sqlx::Error>> {
        // By its digest, so that the cache has no key.
        let digest: [u8; 32] = Sha256::digest(presented).into();
        match self.believed.get(&digest).await {
            Some(Some(caller)) => return Ok(Found::Active(caller)),
            Some(None) => return Ok(self.refuse_unknown(peer)),
            None => {}
        }
        let Some(text) = KeyText::parse(presented) else { return Ok(self.refuse_unknown(peer)) };
        // Boxed, because each request moves the future of its key several times, and this part is 20 KB of it.
        let looked_up = Box::pin(self.believed.try_get_with(digest, self.look_up(pools, digest, &text, peer))).await;
        match looked_up {
            Ok(Some(caller)) => Ok(Found::Active(caller)),
            Ok(None) => Ok(Found::Unknown),
            Err(error) => match &*error {
                NoAnswer::TooManyUnknown => Ok(Found::TooManyUnknown),
                NoAnswer::Database(error) => Err(error.clone()),
            },
        }
    }

    /// Reads a key. Requests that present it at the same time wait for this one lookup, which takes one try of the address,
    /// and returns it if the key is active. Without a try, only a key that was active some seconds ago is read.
    async fn look_up(
        &self,
        pools: KeyPools<'_>,
        digest: [u8; 32],
        text: &KeyText<'_>,
        peer: IpAddr,
    ) -> Result<Option<Caller>, NoAnswer> {
        let has_try = self.take_try(peer);
        if !has_try && !self.is_active(pools.fires, digest).await? {
            return Err(NoAnswer::TooManyUnknown);
        }
        let mut connection = pools.of_request.acquire().await?;
        let found = verify_key(&mut connection, text).await?;
        if has_try && found.is_some() {
            self.bad.iter().for_each(|bad| bad.return_try(peer));
        }
        Ok(found.map(|(key, own)| Caller::of_key(key, own.or(self.limits.team))))
    }

    fn take_try(&self, peer: IpAddr) -> bool {
        self.bad.as_ref().is_none_or(|bad| bad.take_try(peer, Instant::now()))
    }

    fn refuse_unknown(&self, peer: IpAddr) -> Found {
        if self.take_try(peer) { Found::Unknown } else { Found::TooManyUnknown }
    }

    /// Whether this is the digest of a key that was active some seconds ago. A flood of unknown keys reads the database
    /// once in these seconds, and no active key has to wait for the end of the flood.
    async fn is_active(&self, pool: &PgPool, digest: [u8; 32]) -> Result<bool, Arc<sqlx::Error>> {
        let read = self.active.try_get_with((), async {
            let mut connection = pool.acquire().await?;
            Ok::<_, sqlx::Error>(Arc::new(list_active_digests(&mut connection).await?))
        });
        Ok(read.await?.contains(&digest))
    }

    /// Counts a request while its places exist, before its key is read. `limited` is its address, unless it is not
    /// limited by its address.
    ///
    /// # Errors
    /// Fails if the address or the instance has as many in progress as it may have.
    pub fn take_request_places(&self, limited: Option<IpAddr>) -> Result<Vec<Place>, Full> {
        let Limits { address_requests_in_flight, requests_in_flight, .. } = self.limits;
        let mut places = Vec::with_capacity(2);
        if let Some(address) = limited {
            let counted = Counted::Address(network_of(address));
            places.push(self.in_flight.take_place(counted, Some(address_requests_in_flight))?);
        }
        places.push(self.in_flight.take_place(Counted::Instance, Some(requests_in_flight))?);
        Ok(places)
    }

    /// Counts a request to the sign-in while its places exist. It needs no key, so that any client may leave it unfinished: its
    /// places are others than those of requests with a key, and fewer. `limited` as for [`Self::take_request_places`].
    ///
    /// # Errors
    /// Fails if the address or the instance has as many in progress as it may have.
    pub fn take_sign_in_places(&self, limited: Option<IpAddr>) -> Result<Vec<Place>, Full> {
        let Limits { address_requests_in_flight, requests_in_flight, .. } = self.limits;
        let mut places = Vec::with_capacity(2);
        if let Some(address) = limited {
            let counted = Counted::SignInsOfAddress(network_of(address));
            places.push(self.in_flight.take_place(counted, Some(part_of_sign_ins(address_requests_in_flight)))?);
        }
        places.push(self.in_flight.take_place(Counted::SignIns, Some(part_of_sign_ins(requests_in_flight)))?);
        Ok(places)
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

    /// Counts a stream of a key, which stays open; it is not counted among its requests.
    ///
    /// # Errors
    /// Fails if the key has as many open as it may have.
    pub fn take_stream_place(&self, caller: &Caller) -> Result<Place, Full> {
        self.in_flight.take_place(Counted::Streams(caller.id), Some(STREAMS_OF_A_KEY))
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
}

/// How many of so many requests may be of the sign-in: at least one, and any number if there is no limit.
fn part_of_sign_ins(limit: i64) -> i64 {
    if limit > 0 { (limit / SIGN_IN_PART).max(1) } else { 0 }
}
