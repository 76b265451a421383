//! Steps 1 and 7 of 7: identifies the caller. `X-API-Key` becomes a [`Caller`], and a handler requires the role that it
//! needs.
//!
//! An active key is cached for a few seconds, so that a duplicate fire reads no database and a revoked key is soon
//! refused. Invalid keys are rate-limited by address; scheduler keys never are.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use moka::future::Cache;
use uuid::Uuid;

use super::error::Error;
use crate::App;
use crate::audit::Edit;
use crate::config::Config;
use crate::keys::{self, Key, Kind, Role};

/// How long a key is cached without reading the database.
const BELIEVED_FOR: Duration = Duration::from_secs(4);
const _: () = assert!(BELIEVED_FOR.as_secs() < 5, "a revoked key opens nothing after five seconds");

/// The address of the connection; the server sets it.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// The authenticated caller.
#[derive(Clone, Debug)]
pub struct Caller {
    id: Uuid,
    prefix: String,
    kind: Kind,
    team_id: Option<i64>,
    role: Option<Role>,
}

/// May read: an admin everything, a team key the data of its team.
pub struct Viewer(pub Caller);
/// May write: an admin everything, an editor the data of its team.
pub struct Editor(pub Caller);
/// May do everything except `:invoke`.
pub struct Admin(pub Caller);
/// May call `:invoke`.
pub struct Scheduler;

impl Caller {
    /// The team that the caller is restricted to; `None` for an admin.
    #[must_use]
    pub fn team_id(&self) -> Option<i64> {
        self.team_id
    }

    /// The actor, time and trace for the audit log.
    #[must_use]
    pub fn edit(&self, app: &App, traceparent: String) -> Edit {
        Edit { actor: format!("key:{}", self.prefix), now: app.clock.now(), traceparent: Some(traceparent) }
    }
}

impl From<Key> for Caller {
    fn from(key: Key) -> Self {
        Self { id: key.id, prefix: key.prefix, kind: key.kind, team_id: key.team_id, role: key.role }
    }
}

/// Caches the keys that were used recently, and counts the invalid keys of each address.
#[derive(Clone)]
pub struct Gate {
    believed: Cache<[u8; 32], Option<Caller>>,
    bad: Option<Arc<DefaultKeyedRateLimiter<IpAddr>>>,
    good: Option<Arc<DefaultKeyedRateLimiter<Uuid>>>,
}

impl Gate {
    /// A gate with the limits of the configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            believed: Cache::builder().max_capacity(10_000).time_to_live(BELIEVED_FOR).build(),
            bad: NonZeroU32::new(config.bad_keys_per_min).map(|n| Arc::new(RateLimiter::keyed(Quota::per_minute(n)))),
            good: NonZeroU32::new(config.key_requests_per_sec)
                .map(|n| Arc::new(RateLimiter::keyed(Quota::per_second(n)))),
        }
    }

    /// Empties the cache of this instance at once.
    pub fn forget_all(&self) {
        self.believed.invalidate_all();
    }

    /// Removes idle entries of the limiters; called periodically.
    pub fn sweep(&self) {
        self.bad.iter().for_each(|limiter| limiter.retain_recent());
        self.good.iter().for_each(|limiter| limiter.retain_recent());
    }

    async fn admit(&self, app: &App, presented: &str, peer: IpAddr) -> Result<Caller, Error> {
        let looked_up = self.believed.try_get_with(keys::digest(presented), async {
            let mut connection = app.pool.acquire().await?;
            Ok(keys::verify(&mut connection, presented, app.clock.now()).await?.map(Caller::from))
        });
        let Some(caller) = looked_up.await? else { return Err(self.refuse(app, peer)) };
        if caller.kind != Kind::Scheduler
            && self.good.as_ref().is_some_and(|limiter| limiter.check_key(&caller.id).is_err())
        {
            return Err(Error::Later(
                StatusCode::TOO_MANY_REQUESTS,
                "rate_limited",
                "too many requests with this key",
                1,
            ));
        }
        Ok(caller)
    }

    fn refuse(&self, app: &App, peer: IpAddr) -> Error {
        app.metrics.bad_keys.inc();
        if self.bad.as_ref().is_some_and(|limiter| limiter.check_key(&peer).is_err()) {
            let detail = "too many unknown keys from this address";
            return Error::Later(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail, 60);
        }
        Error::unauthorized()
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let presented = parts.headers.get("x-api-key").and_then(|value| value.to_str().ok());
        let peer = parts.extensions.get::<Peer>().map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0);
        match presented {
            None => Err(Error::unauthorized()),
            Some(presented) => app.gate.admit(app, presented, peer).await,
        }
    }
}

impl FromRequestParts<App> for Viewer {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let caller = Caller::from_request_parts(parts, app).await?;
        match caller.kind {
            Kind::Admin | Kind::Team => Ok(Self(caller)),
            Kind::Scheduler => Err(Error::forbidden("a scheduler key opens :invoke alone")),
        }
    }
}

impl FromRequestParts<App> for Editor {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let Viewer(caller) = Viewer::from_request_parts(parts, app).await?;
        match caller.role {
            Some(Role::Viewer) => Err(Error::forbidden("this key may read, not write")),
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
            Kind::Team | Kind::Scheduler => Err(Error::forbidden("an admin key is needed")),
        }
    }
}

impl FromRequestParts<App> for Scheduler {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let caller = Caller::from_request_parts(parts, app).await?;
        match caller.kind {
            Kind::Scheduler => Ok(Self),
            Kind::Admin | Kind::Team => Err(Error::forbidden("a scheduler key is needed")),
        }
    }
}
