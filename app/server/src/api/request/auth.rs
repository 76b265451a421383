//! Steps 1 and 7 of 7: identifies the caller. `X-API-Key` or a token becomes a [`Caller`], once for each request, and a
//! handler requires the role that it needs.
//!
//! The crate `access` decides whether a key is valid, and limits the rate of its requests.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use access::gate::sessions::SignInTry;
use access::gate::{ACTIVE_KEYS_FRESH_FOR, Admission, KeyPools};
use access::rights::{Kind, Scope};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, StatusCode};
use db::PgPool;
use uuid::Uuid;
use workflows::definition::redaction::Audience;

use super::bearer::{self, Credential};
use super::error::{Error, Limit};
use crate::App;
use crate::connection::{Connection, Rank};
use crate::identity_provider::IdentityProvider;

pub use access::gate::Caller;

/// The address of the client, which a trusted proxy may have named; the server sets it.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// The prefix of the key of a request, for its line in the log; [`identify_caller`] sets it.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyPrefix(Arc<OnceLock<Arc<str>>>);

impl KeyPrefix {
    /// The prefix; `None` if no active key was sent.
    pub(crate) fn as_str(&self) -> Option<&str> {
        self.0.get().map(|prefix| &**prefix)
    }
}

/// The caller of a session, in a request that a page of the console sends to the API in the process. No client can set it.
#[derive(Clone)]
pub(crate) struct SessionCaller {
    pub(crate) caller: Caller,
    /// The text of its cookie, by which an answer that stays open finds the session again.
    pub(crate) text: Arc<str>,
}

/// May read: an admin everything, a team key the data of its team.
pub struct Viewer(pub Caller);
/// May write: an admin everything, an editor the data of its team.
pub struct Editor(pub Caller);
/// May read what belongs to all teams.
pub struct Auditor(pub Caller);
/// May also repair the outbox and check the drift.
pub struct Operator(pub Caller);
/// May do everything except `:invoke`.
pub struct Admin(pub Caller);
/// May call `:invoke`.
pub struct Scheduler;
/// Has a key, of any kind, which it may rotate.
pub struct Owner(pub Caller);
/// Has a key with which a browser may sign in: of a team or of an admin.
pub struct KeyHolder(pub Caller);

impl FromRequestParts<App> for Caller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        match parts.extensions.get::<Caller>() {
            Some(caller) => Ok(caller.clone()),
            // Only the route of fires counts no requests, so that nothing has identified its caller yet.
            None => identify_caller(parts, app, &app.pools.fires).await,
        }
    }
}

/// Returns the caller of a request; if its key is not cached, a connection of this pool reads it.
///
/// # Errors
/// Returns 401 or 429, or the failure of the database.
pub(super) async fn identify_caller(parts: &Parts, app: &App, pool: &PgPool) -> Result<Caller, Error> {
    let Peer(peer) = Peer::of_request(&parts.extensions);
    if let Some(SessionCaller { caller, .. }) = parts.extensions.get() {
        note_caller(parts, caller);
        return Ok(caller.clone().at_address(peer));
    }
    let provider = app.identity_provider();
    let caller = match (bearer::find_credential(&parts.headers, provider.is_some())?, provider) {
        (Credential::Key(key), _) => {
            let pools = KeyPools { of_request: pool, fires: &app.pools.fires };
            admitted(app, app.gate.admit_key(pools, key, peer, app.clock.now()).await?)?
        }
        (Credential::Token(token), Some(provider)) => {
            let admission = Box::pin(bearer::admit_token(app, provider, pool, token, peer)).await?;
            admitted(app, admission).map_err(Error::of_token)?
        }
        (Credential::Token(_) | Credential::Nothing, _) => return Err(Error::unauthorized()),
    };
    let caller = caller.at_address(peer);
    note_caller(parts, &caller);
    Ok(caller)
}

/// Notes on the connection whose it is, and the prefix of the key for the line of the request.
fn note_caller(parts: &Parts, caller: &Caller) {
    if let Some(connection) = parts.extensions.get::<Arc<Connection>>() {
        let is_scheduler = caller.kind == Kind::Scheduler;
        connection.raise_rank(if is_scheduler { Rank::Scheduler } else { Rank::Known });
    }
    if let Some(KeyPrefix(prefix)) = parts.extensions.get().filter(|_| !caller.is_person()) {
        prefix.get_or_init(|| caller.prefix().clone());
    }
}

impl Peer {
    pub(crate) fn of_request(extensions: &Extensions) -> Self {
        extensions.get().copied().unwrap_or_else(Self::unknown)
    }

    /// That of a request that no server has accepted, in a test.
    pub(crate) fn unknown() -> Self {
        Self(IpAddr::from([0, 0, 0, 0]))
    }
}

/// The session that a cookie names, and what its holder may do now; `None` if it has ended.
///
/// # Errors
/// Fails if the database does not answer.
pub(crate) async fn admit_session(app: &App, text: &str, Peer(peer): Peer) -> Result<Option<(Uuid, Admission)>, Error> {
    let groups = app.identity_provider().map(IdentityProvider::groups);
    Ok(app.gate.admit_session(&app.pools.reads, text, groups, peer, app.clock.now()).await?)
}

/// The same for an answer that is open, which counts as no failed login.
///
/// # Errors
/// Fails if the database does not answer.
pub(crate) async fn check_session(app: &App, text: &str, Peer(peer): Peer) -> Result<Option<(Uuid, Admission)>, Error> {
    let groups = app.identity_provider().map(IdentityProvider::groups);
    Ok(app.gate.check_session(&app.pools.reads, text, groups, peer, app.clock.now()).await?)
}

pub(crate) fn admitted(app: &App, admission: Admission) -> Result<Caller, Error> {
    let limits = app.gate.limits();
    match admission {
        Admission::Admitted(caller) => Ok(caller),
        Admission::TooManyRequests => {
            let detail = "too many requests with this key: wait for Retry-After seconds, then repeat".to_owned();
            let quota = limits.key_requests_per_sec.into();
            let limit = Limit { policy: "key-requests-per-second", quota, window_secs: Some(1), retry_secs: 1 };
            Err(Error::limited("rate_limited", detail, limit))
        }
        Admission::Expired => {
            app.metrics.bad_keys.inc();
            Err(Error::key_expired())
        }
        Admission::AddressNotAllowed => {
            app.metrics.bad_keys.inc();
            let detail =
                "the key is not accepted from this address: use one of its networks, or ask an admin for another key";
            Err(Error::Refused(StatusCode::FORBIDDEN, "address_not_allowed", detail.to_owned()))
        }
        Admission::NoRole => {
            let detail = "no group of this person has a role: ask an operator to add one to the file of groups";
            Err(Error::forbidden(detail))
        }
        Admission::Unknown => {
            app.metrics.bad_keys.inc();
            Err(Error::unauthorized())
        }
        Admission::TooManyUnknown => Err(too_many_unknown(app)),
    }
}

fn too_many_unknown(app: &App) -> Error {
    app.metrics.bad_keys.inc();
    let detail = "too many unknown keys from this address: wait for Retry-After seconds, then send an active key";
    let quota = app.gate.limits().bad_keys_per_min.into();
    // By then an active key is known to be active.
    let retry_secs = u32::try_from(ACTIVE_KEYS_FRESH_FOR.as_secs()).unwrap_or(u32::MAX);
    let limit = Limit { policy: "unknown-keys-per-minute", quota, window_secs: Some(60), retry_secs };
    Error::limited("rate_limited", detail.to_owned(), limit)
}

/// A try of this address to sign in by a link, or by a code of the provider.
///
/// # Errors
/// Returns 429 if the address has no try left.
pub(crate) fn begin_sign_in(app: &App, peer: IpAddr) -> Result<SignInTry<'_>, Error> {
    app.gate.begin_sign_in(peer, app.clock.now()).ok_or_else(|| too_many_unknown(app))
}

/// Returns how much of a workflow this caller sees.
pub(crate) fn audience_of(caller: &Caller) -> Audience {
    if caller.permits(Scope::Edit) { Audience::Editor } else { Audience::Viewer }
}

/// Returns how much of the workflows of a team this caller sees.
pub(crate) fn audience_in(caller: &Caller, team_id: i64) -> Audience {
    caller.in_team(team_id).map_or(Audience::Viewer, |caller| audience_of(&caller))
}

/// Returns the caller of a request, if its key has the scope.
async fn require(parts: &mut Parts, app: &App, scope: Scope) -> Result<Caller, Error> {
    let caller = Caller::from_request_parts(parts, app).await?;
    if caller.permits(scope) {
        return Ok(caller);
    }
    Err(Error::forbidden(&format!("use a key with the scope {}", scope.as_str())))
}

impl FromRequestParts<App> for Viewer {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        require(parts, app, Scope::Read).await.map(Self)
    }
}

impl FromRequestParts<App> for Editor {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        require(parts, app, Scope::Edit).await.map(Self)
    }
}

impl FromRequestParts<App> for Auditor {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        require(parts, app, Scope::Auditor).await.map(Self)
    }
}

impl FromRequestParts<App> for Operator {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        require(parts, app, Scope::Operate).await.map(Self)
    }
}

impl FromRequestParts<App> for Admin {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        require(parts, app, Scope::Admin).await.map(Self)
    }
}

impl FromRequestParts<App> for Owner {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let caller = Caller::from_request_parts(parts, app).await?;
        if caller.is_person() {
            return Err(Error::forbidden("send the key to rotate in X-API-Key: a person has none"));
        }
        Ok(Self(caller))
    }
}

impl FromRequestParts<App> for KeyHolder {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let Owner(caller) = Owner::from_request_parts(parts, app).await?;
        if caller.kind == Kind::Scheduler {
            return Err(Error::forbidden("this key is for the runner: send a key of a team or of an admin"));
        }
        Ok(Self(caller))
    }
}

impl FromRequestParts<App> for Scheduler {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        require(parts, app, Scope::Invoke).await.map(|_| Self)
    }
}
