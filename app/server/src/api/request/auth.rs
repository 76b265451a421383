//! Steps 1 and 7 of 7: identifies the caller. `X-API-Key` or a token becomes a [`Caller`], once for each request, and a
//! handler requires the role that it needs.
//!
//! The crate `access` decides whether a key is valid, and limits the rate of its requests.

use std::net::IpAddr;

use access::gate::Admission;
use access::keys::{Kind, Role};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use db::PgPool;

use super::bearer::{self, Credential};
use super::error::{Error, Limit};
use crate::App;

pub use access::gate::Caller;

/// The address of the connection; the server sets it.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// May read: an admin everything, a team key the data of its team.
pub struct Viewer(pub Caller);
/// May write: an admin everything, an editor the data of its team.
pub struct Editor(pub Caller);
/// May do everything except `:invoke`.
pub struct Admin(pub Caller);
/// May call `:invoke`.
pub struct Scheduler;

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
    let peer = parts.extensions.get::<Peer>().map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0);
    let provider = app.identity_provider();
    match (bearer::find_credential(&parts.headers, provider.is_some())?, provider) {
        (Credential::Key(key), _) => admitted(app, app.gate.admit_key(pool, key, peer, app.clock.now()).await?),
        (Credential::Token(token), Some(provider)) => {
            let admission = bearer::admit_token(app, provider, pool, token, peer).await?;
            admitted(app, admission).map_err(Error::of_token)
        }
        (Credential::Token(_) | Credential::Nothing, _) => Err(Error::unauthorized()),
    }
}

fn admitted(app: &App, admission: Admission) -> Result<Caller, Error> {
    let limits = app.gate.limits();
    match admission {
        Admission::Admitted(caller) => Ok(caller),
        Admission::TooManyRequests => {
            let detail = "too many requests with this key: wait for Retry-After seconds, then repeat".to_owned();
            let quota = limits.key_requests_per_sec.into();
            let limit = Limit { policy: "key-requests-per-second", quota, window_secs: Some(1), retry_secs: 1 };
            Err(Error::limited("rate_limited", detail, limit))
        }
        Admission::Unknown => {
            app.metrics.bad_keys.inc();
            Err(Error::unauthorized())
        }
        Admission::TooManyUnknown => {
            app.metrics.bad_keys.inc();
            let detail =
                "too many unknown keys from this address: wait for Retry-After seconds, then send an active key";
            let quota = limits.bad_keys_per_min.into();
            let limit = Limit { policy: "unknown-keys-per-minute", quota, window_secs: Some(60), retry_secs: 60 };
            Err(Error::limited("rate_limited", detail.to_owned(), limit))
        }
    }
}

impl FromRequestParts<App> for Viewer {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let caller = Caller::from_request_parts(parts, app).await?;
        match caller.kind {
            Kind::Admin | Kind::Team => Ok(Self(caller)),
            Kind::Scheduler => Err(Error::forbidden("a scheduler key can only call :invoke")),
        }
    }
}

impl FromRequestParts<App> for Editor {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let Viewer(caller) = Viewer::from_request_parts(parts, app).await?;
        match caller.role {
            Some(Role::Viewer) => Err(Error::forbidden("this key can only read: use one with the role editor")),
            Some(Role::Editor) | None => Ok(Self(caller)),
        }
    }
}

impl FromRequestParts<App> for Admin {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let caller = Caller::from_request_parts(parts, app).await?;
        match caller.kind {
            Kind::Admin => Ok(Self(caller)),
            Kind::Team | Kind::Scheduler => Err(Error::forbidden("use an admin key")),
        }
    }
}

impl FromRequestParts<App> for Scheduler {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let caller = Caller::from_request_parts(parts, app).await?;
        match caller.kind {
            Kind::Scheduler => Ok(Self),
            Kind::Admin | Kind::Team => Err(Error::forbidden("use a scheduler key")),
        }
    }
}
