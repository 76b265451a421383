//! Step 7 of 7: connects to a receiver: resolves its name once, and tries only addresses that may be reached.

use std::convert::Infallible;
use std::error::Error;
use std::future::{self, Future};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use hyper::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls_platform_verifier::Verifier;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::{Service, ServiceExt as _, service_fn};

use crate::allowed::{Allowed, Transport, Unreachable};
use crate::connection::Wire;

/// How long a client may take to connect, with the lookup of the name and TLS.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// When an idle connection is probed, and how often; and how long sent bytes may be unacknowledged.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 3;
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

type Connecting = Pin<Box<dyn Future<Output = Result<Wire, ConnectError>> + Send>>;

/// Connects for one team.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) allowed: Allowed,
    pub(crate) team_id: Option<i64>,
    /// Whether a URL may begin with http and lead to each address that may be reached.
    pub(crate) may_use_http: bool,
    pub(crate) tls: TlsConnector,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("no connection within {} s", CONNECT_TIMEOUT.as_secs())]
    Slow,
    #[error("the host cannot be reached")]
    Unreachable(#[from] Unreachable),
    #[error("no connection")]
    Tcp(#[source] Box<dyn Error + Send + Sync>),
    #[error("no TLS")]
    Tls(#[source] io::Error),
    #[error("the URL has no host that a certificate could name")]
    NoHost,
}

/// TLS by the certificate authorities of the system, and by these.
pub(crate) fn set_up_tls(authorities: Vec<CertificateDer<'static>>) -> anyhow::Result<TlsConnector> {
    let provider = CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(aws_lc_rs::default_provider()));
    let verifier = Verifier::new_with_extra_roots(authorities, provider.clone()).context("cannot set up TLS")?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("cannot set up TLS")?
        // rustls calls every verifier but its own so. This is the one of `with_platform_verifier`, with more roots.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config).into())
}

impl Service<Uri> for Connector {
    type Response = Wire;
    type Error = ConnectError;
    type Future = Connecting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Connecting {
        let connector = self.clone();
        Box::pin(async move {
            let connected = tokio::time::timeout(CONNECT_TIMEOUT, connector.connect(uri)).await;
            connected.unwrap_or(Err(ConnectError::Slow))
        })
    }
}

impl Connector {
    async fn connect(self, uri: Uri) -> Result<Wire, ConnectError> {
        let host = uri.host().ok_or(ConnectError::NoHost)?.to_owned();
        let transport = self.transport(&uri);
        let addresses = self.allowed.find_addresses(self.team_id, &host, transport).await?;
        let stream = connect_tcp(addresses, uri).await?;
        if transport != Transport::Encrypted {
            return Ok(Wire::plain(stream));
        }
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(name).map_err(|_| ConnectError::NoHost)?;
        Ok(Wire::tls(self.tls.connect(name, stream).await.map_err(ConnectError::Tls)?))
    }

    fn transport(&self, uri: &Uri) -> Transport {
        match uri.scheme_str() {
            Some("https") => Transport::Encrypted,
            _ if self.may_use_http => Transport::ExcusedClearText,
            _ => Transport::ClearText,
        }
    }
}

/// Tries the addresses, of both families at almost the same time (RFC 8305). The port is that of the URI.
async fn connect_tcp(addresses: Vec<IpAddr>, uri: Uri) -> Result<TcpStream, ConnectError> {
    let checked = service_fn(move |_: Name| {
        let sockets: Vec<_> = addresses.iter().map(|address| SocketAddr::new(*address, 0)).collect();
        future::ready(Ok::<_, Infallible>(sockets.into_iter()))
    });
    let mut http = HttpConnector::new_with_resolver(checked);
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_keepalive(Some(KEEPALIVE));
    http.set_keepalive_interval(Some(KEEPALIVE));
    http.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    #[cfg(target_os = "linux")]
    http.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let connected = http.oneshot(uri).await.map_err(|error| ConnectError::Tcp(error.into()))?;
    Ok(connected.into_inner())
}
