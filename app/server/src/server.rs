//! Steps 1 and 7 of 7: the server. A slow or silent client occupies a connection for seconds only.
//!
//! hyper's header timeout needs a timer, and `axum::serve` sets none: a client that sends half a header would occupy
//! its connection forever. So this module has its own loop, with a limit for writes (`server/write_progress.rs`) and with
//! places for connections (`server/places.rs`).

mod places;
mod write_progress;

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::response::Response;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use self::places::{Place, Places};
use self::write_progress::{ProgressStream, WriteStalled};
use crate::App;
use crate::api::request::auth::Peer;
use crate::api::request::client_address::client_address;
use crate::connection::Connection;

/// The largest request line with all headers, in bytes.
const HEADER_LIMIT: usize = 16 * 1024;

/// How many connections may wait to be accepted. Fires arrive on the minute, all at once. With the usual 128 the system
/// would drop the others, and they would be repeated a second later.
const BACKLOG: u32 = 4096;

/// Listens, with room for all fires of a full minute.
///
/// # Errors
/// Fails if the address is in use, or is not an address of this machine.
pub fn bind_listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// How long the requests of open connections may take to end at shutdown.
const CONNECTIONS_END: Duration = Duration::from_secs(3);

/// How long a connection that must make room may take to answer before the next one must, too.
const ROOM_PATIENCE: Duration = Duration::from_millis(100);

/// Serves until `shutdown`, then lets the active requests end.
pub(crate) async fn serve_connections(
    listener: TcpListener,
    router: Router,
    app: &App,
    shutdown: impl Future<Output = ()>,
) {
    let places = Places::new(app.config.max_connections, app.config.address_connections);
    let connections = TaskTracker::new();
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &places, app) => accepted,
        };
        let (stream, place) = match accepted {
            Ok(Some(accepted)) => accepted,
            Ok(None) => continue,
            Err(error) => {
                // Probably there are no file descriptors left; without a pause this loop would spin.
                tracing::warn!(%error, "connection not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        connections.spawn(serve_connection(stream, place, router.clone(), app.clone()));
    }
    drop(listener);
    places.dismiss_all();
    connections.close();
    if tokio::time::timeout(CONNECTIONS_END, connections.wait()).await.is_err() {
        tracing::warn!("connections closed by shutdown; edits in progress still complete");
    }
}

/// Accepts a connection and waits for its place; `None` if its address has too many.
async fn accept(listener: &TcpListener, places: &Places, app: &App) -> io::Result<Option<(TcpStream, Place)>> {
    let (stream, peer) = listener.accept().await?;
    let address = peer.ip().to_canonical();
    if !app.config.is_trusted_peer(address) && places.is_limit_reached(address) {
        app.note_connection_refusal("address_connections", address);
        return Ok(None);
    }
    stream.set_nodelay(true)?;
    Ok(take_place(places, address, app).await.map(|place| (stream, place)))
}

/// Takes a place. While none is free, one connection after another makes room: the first may still have to answer.
async fn take_place(places: &Places, address: IpAddr, app: &App) -> Option<Place> {
    if let Some(place) = places.try_take(address) {
        return Some(place);
    }
    loop {
        if let Some(ended) = places.end_expendable(Instant::now()) {
            app.note_connection_refusal("connection_places", ended);
        }
        if let Ok(place) = tokio::time::timeout(ROOM_PATIENCE, places.take(address)).await {
            return place;
        }
    }
}

/// What a connection must do, from now on or at once.
enum Signal {
    /// End after the answer to the present request.
    Dismiss,
    /// End.
    End,
}

/// Serves a connection until it ends, or until another one needs its place.
async fn serve_connection(stream: TcpStream, place: Place, router: Router, app: App) {
    let connection = &place.connection;
    let serving = connection_of(stream, connection, router, &app);
    tokio::pin!(serving);
    // The set polls a signal only when the signal itself wakes the task, and not with each read and write of the connection.
    let mut signals = FuturesUnordered::from_iter([
        connection.until_dismissed().map(|()| Signal::Dismiss).left_future(),
        connection.until_ended().map(|()| Signal::End).right_future(),
    ]);
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut serving => break Some(ended),
            Some(signal) = signals.next() => match signal {
                Signal::End => break None,
                Signal::Dismiss => serving.as_mut().graceful_shutdown(),
            },
        }
    };
    let Some(Err(error)) = ended else { return };
    if is_stalled(&error) {
        app.note_connection_refusal("slow_write", connection.address);
    } else {
        tracing::debug!(%error, "connection ended");
    }
}

/// Whether a connection ended because its client read nothing.
fn is_stalled(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    cause.and_then(io::Error::get_ref).and_then(|cause| cause.downcast_ref::<WriteStalled>()).is_some()
}

fn connection_of(
    stream: TcpStream,
    connection: &Arc<Connection>,
    router: Router,
    app: &App,
) -> http1::Connection<
    TokioIo<ProgressStream>,
    impl hyper::service::HttpService<
        hyper::body::Incoming,
        ResBody = axum::body::Body,
        Error = std::convert::Infallible,
        Future: Send + 'static,
    > + Send
    + 'static,
> {
    let (begun, ended, trusting) = (connection.clone(), connection.clone(), app.clone());
    let service = router
        .map_request(move |mut request: hyper::Request<hyper::body::Incoming>| {
            begun.begin_request();
            let config = &trusting.config;
            let address =
                client_address(request.headers(), begun.address, &config.trusted_proxies, config.trusted_hops);
            request.extensions_mut().insert(Peer(address));
            request.extensions_mut().insert(begun.clone());
            request
        })
        .map_response(move |response: Response| {
            ended.end_request();
            response
        });
    let stream = ProgressStream::new(stream, Duration::from_millis(app.config.write_timeout_ms));
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(app.config.header_timeout_ms))
        .max_buf_size(HEADER_LIMIT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand fires of one minute connect before the app has accepted the first of them.
    #[tokio::test]
    async fn the_backlog_has_room_for_fires() {
        let listener = bind_listener("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        for nth in 0..1000 {
            let connecting = tokio::time::timeout(Duration::from_secs(1), TcpStream::connect(address)).await;
            waiting.push(connecting.unwrap_or_else(|_| panic!("client {nth} is turned away")).unwrap());
        }
    }
}
