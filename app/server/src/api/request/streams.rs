//! Steps 1 and 7 of 7: requests whose answer stays open. They are not counted among the requests of a key, which would
//! have none left, but among its streams.

use std::sync::Arc;

use access::gate::{Caller, Work};
use access::in_flight::Place;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;

use super::auth::{Peer, SessionCaller, admitted, check_session, identify_caller};
use super::error::Error;
use super::limits::{self, refused};
use crate::App;
use crate::connection::Connection;

/// A stream that was admitted: it occupies a place of its key until it is dropped.
pub(crate) struct AdmittedStream {
    /// The head of the request, by which its caller is identified again.
    parts: Parts,
    _place: Place,
}

impl AdmittedStream {
    /// The caller, if the key, the token or the session is still valid.
    ///
    /// # Errors
    /// Returns the refusal that a new request would get.
    pub(crate) async fn identify_again(&self, app: &App) -> Result<Caller, Error> {
        match self.parts.extensions.get() {
            // Its caller is that of the begin of the stream.
            Some(SessionCaller { text, .. }) => {
                let found = check_session(app, text, Peer::of_request(&self.parts.extensions)).await?;
                let (_, admission) = found.ok_or_else(Error::unauthorized)?;
                admitted(app, admission)
            }
            None => identify_caller(&self.parts, app, &app.pools.reads).await,
        }
    }

    /// Waits until another connection needs the place of this one.
    pub(crate) async fn until_dismissed(&self) {
        match self.parts.extensions.get::<Arc<Connection>>() {
            Some(connection) => connection.until_dismissed().await,
            None => std::future::pending().await,
        }
    }
}

/// Whether a client asks for a stream.
pub(crate) fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|kind| kind.trim().starts_with("text/event-stream"))
}

/// Admits a stream, or counts the request as any other one.
pub(crate) async fn admit_stream(State(app): State<App>, request: Request, next: Next) -> Result<Response, Error> {
    if !wants_stream(request.headers()) {
        return limits::count_request(State((app, Work::Read)), request, next).await;
    }
    let (mut parts, body) = request.into_parts();
    let caller = identify_caller(&parts, &app, &app.pools.reads).await?;
    let place = app.gate.take_stream_place(&caller).map_err(refused)?;
    let admitted = Arc::new(AdmittedStream { parts: parts.clone(), _place: place });
    parts.extensions.insert(caller);
    parts.extensions.insert(admitted);
    Ok(next.run(Request::from_parts(parts, body)).await)
}
