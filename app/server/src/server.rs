//! Steps 1 and 7 of 7: the server. A slow or silent client occupies a connection for seconds only.
//!
//! hyper's header timeout needs a timer, and `axum::serve` sets none: a client that sends half a header would occupy
//! its connection forever. So this module has its own loop.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tower::ServiceExt as _;

use crate::api::request::auth::Peer;
use crate::config::Config;

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

/// Serves until `shutdown`, then lets the active requests end.
pub(crate) async fn serve_connections(
    listener: TcpListener,
    router: Router,
    config: &Config,
    shutdown: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(config.max_connections));
    let connections = GracefulShutdown::new();
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let (stream, peer, place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Probably there are no file descriptors left; without a pause this loop would spin.
                tracing::warn!(%error, "connection not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let connection = connections.watch(connection(stream, peer, router.clone(), config));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
            drop(place);
        });
    }
    drop(listener);
    if tokio::time::timeout(CONNECTIONS_END, connections.shutdown()).await.is_err() {
        tracing::warn!("connections closed by shutdown; edits in progress still complete");
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, peer, place))
}

fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    config: &Config,
) -> http1::Connection<
    TokioIo<TcpStream>,
    impl hyper::service::HttpService<
        hyper::body::Incoming,
        ResBody = axum::body::Body,
        Error = std::convert::Infallible,
        Future: Send + 'static,
    > + Send
    + 'static,
> {
    let service = router.map_request(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(Peer(peer.ip()));
        request
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(config.header_timeout_ms))
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
