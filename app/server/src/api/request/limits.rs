//! Steps 1 and 7 of 7: how many requests of a key, a team and an address are in progress. The table of routes says what
//! each does.
//!
//! The runner's fires are never counted: they are limited by what the team's workflows may add up to.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use access::gate::{Places, Work};
use access::in_flight::{Counted, Full, Place};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::Extensions;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use db::{PgPool, READ_LIMIT_SECS};
use tokio::runtime::Handle;

use super::auth::{Peer, identify_caller};
use super::error::{Error, Limit};
use super::team::choose_team;
use crate::App;

/// What a request of a route does to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// It needs no key, and is not counted.
    Open,
    /// It delivers a fire, and is not counted.
    Fire,
    /// It reads an object, or computes.
    Read,
    /// It reads many rows.
    List,
    /// It writes.
    Edit,
    /// Its answer may stay open.
    Stream,
}

impl Load {
    /// What is counted of it, if it is.
    pub(crate) fn counted_work(self) -> Option<Work> {
        match self {
            Load::Open | Load::Fire | Load::Stream => None,
            Load::Read => Some(Work::Read),
            Load::List => Some(Work::List),
            Load::Edit => Some(Work::Edit),
        }
    }
}

/// The place of an edit among those of its team, until its transaction or its request has ended.
#[derive(Clone, Debug, Default)]
pub struct EditPlace(Arc<Mutex<Option<Place>>>);

impl EditPlace {
    /// Frees the place, because the rest of the request only waits for EventBridge.
    pub fn release(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl<S: Send + Sync> FromRequestParts<S> for EditPlace {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

/// Counts a request while it is in progress, or refuses it with 429. The handlers get its caller.
pub(crate) async fn count_request(
    State((app, work)): State<(App, Work)>,
    request: Request,
    next: Next,
) -> Result<Response, Error> {
    let (mut parts, body) = request.into_parts();
    let limited = limited_address(&app, &parts.extensions);
    let _of_address = app.gate.take_request_places(limited).map_err(refused)?;
    let pool = pool_of_keys(&app, work);
    let caller = identify_caller(&parts, &app, pool).await?;
    let caller = choose_team(&mut parts, pool, caller).await?;
    let Places { requests, work: place } = app.gate.take_places(&caller, work).map_err(refused)?;
    let edit = EditPlace(Arc::new(Mutex::new(place)));
    let turn = match work {
        Work::List => Some(app.lists_of_team.wait_turn(caller.team_id).await?),
        Work::Read | Work::Edit => None,
    };
    let occupied = Occupied::new((turn, edit.clone(), requests), work);
    parts.extensions.insert(caller);
    parts.extensions.insert(edit);
    let response = next.run(Request::from_parts(parts, body)).await;
    occupied.free();
    Ok(response)
}

/// Counts a request to the sign-in, which needs no key, while it is in progress, or refuses it with 429.
pub(crate) async fn count_sign_in(State(app): State<App>, request: Request, next: Next) -> Result<Response, Error> {
    let limited = limited_address(&app, request.extensions());
    let _of_address = app.gate.take_sign_in_places(limited).map_err(refused)?;
    Ok(next.run(request).await)
}

/// The address of a request, if its requests are limited.
fn limited_address(app: &App, extensions: &Extensions) -> Option<IpAddr> {
    let Peer(address) = Peer::of_request(extensions);
    (!app.config.is_trusted_client(address)).then_some(address)
}

/// What a request occupies. A list that is dropped with its client keeps it for as long as its statement may take, because the
/// statement uses a connection until then.
struct Occupied<T: Send + 'static> {
    kept: Option<T>,
    after_drop: Duration,
}

impl<T: Send + 'static> Occupied<T> {
    fn new(kept: T, work: Work) -> Self {
        let after_drop = match work {
            Work::List => Duration::from_secs(READ_LIMIT_SECS.into()),
            Work::Read | Work::Edit => Duration::ZERO,
        };
        Self { kept: Some(kept), after_drop }
    }

    /// Frees it: the request has ended.
    fn free(mut self) {
        self.kept = None;
    }
}

impl<T: Send + 'static> Drop for Occupied<T> {
    fn drop(&mut self) {
        let (Some(kept), Ok(runtime)) = (self.kept.take(), Handle::try_current()) else { return };
        let after_drop = self.after_drop;
        if !after_drop.is_zero() {
            runtime.spawn(async move {
                tokio::time::sleep(after_drop).await;
                drop(kept);
            });
        }
    }
}

/// A key is read by a connection of the pool that its request uses, so that no other purpose waits for it.
fn pool_of_keys(app: &App, work: Work) -> &PgPool {
    match work {
        Work::Edit => &app.pools.edits,
        Work::Read | Work::List => &app.pools.reads,
    }
}

pub(super) fn refused(full: Full) -> Error {
    let limit = |policy| Limit { policy, quota: full.limit, window_secs: None, retry_secs: 1 };
    let detail = |what: &str| {
        format!("{} {what} are in progress, which is the limit: wait for Retry-After seconds, then repeat", full.limit)
    };
    match full.counted {
        Counted::Key(_) => {
            Error::limited("limit_requests_in_flight", detail("requests with this key"), limit("key-requests"))
        }
        Counted::Streams(_) => Error::limited("limit_streams", detail("streams with this key"), limit("key-streams")),
        Counted::Team(_) => {
            Error::limited("limit_requests_in_flight", detail("requests of the team"), limit("team-requests"))
        }
        Counted::Edits(_) => Error::limited("limit_edits_in_flight", detail("edits of the team"), limit("team-edits")),
        Counted::Lists(_) => Error::limited("limit_lists_in_flight", detail("lists of the team"), limit("team-lists")),
        Counted::Address(_) => {
            Error::limited("limit_requests_in_flight", detail("requests of this address"), limit("address-requests"))
        }
        Counted::Instance => {
            Error::limited("limit_requests_in_flight", detail("requests of all callers"), limit("instance-requests"))
        }
        Counted::SignInsOfAddress(_) => {
            Error::limited("limit_requests_in_flight", detail("sign-ins of this address"), limit("address-sign-ins"))
        }
        Counted::SignIns => {
            Error::limited("limit_requests_in_flight", detail("sign-ins of all clients"), limit("instance-sign-ins"))
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::lines::Lines;

    /// A client that disconnects again and again would use all connections by statements that still run.
    #[tokio::test]
    async fn abandoned_lists_keep_their_turn() {
        let lists = Lines::new(1, 9);
        drop(Occupied::new(lists.wait_turn("team").await.unwrap(), Work::List));
        tokio::task::yield_now().await;
        assert!(lists.wait_turn("team").now_or_never().is_none(), "its statement may still run");
        Occupied::new(lists.wait_turn("others").await.unwrap(), Work::List).free();
        drop(lists.wait_turn("others").now_or_never().expect("the list has ended").unwrap());
    }
}
