//! Step 7 of 7: the HTTP client of all requests that leave the service.
//!
//! It follows no redirect, uses no proxy, stores no cookie, decompresses nothing, and connects only to addresses that it
//! has checked.

#[cfg(test)]
mod malicious_receivers;

use std::error::Error as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use moka::future::Cache;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio_rustls::TlsConnector;
use url::Url;

use crate::allowed::{Allowed, Refused, Tenant, Unreachable};
use crate::connection::Interim;
use crate::connector::{CONNECT_TIMEOUT, ConnectError, Connector, set_up_tls};
use crate::departure::Departing;

/// How long an idle connection is kept.
const IDLE_LIMIT: Duration = Duration::from_secs(90);
/// How many bytes the head of an answer may have.
const HEAD_LIMIT: usize = 64 * 1024;
/// How many teams have connections; those of a team that sends nothing are closed.
const TEAMS_CONNECTED: u64 = 10_000;

type OfTeam = legacy::Client<Connector, Departing>;
/// A team, and whether its request may use http. A connection that only such a request may make serves no other one.
type Of = (Option<i64>, bool);

/// The client of all requests; clones share its connections. No team uses a connection of another team.
#[derive(Clone)]
pub struct Client {
    allowed: Allowed,
    tls: TlsConnector,
    teams: Cache<Of, OfTeam>,
}

/// A request that leaves the service.
pub struct Outgoing<'a> {
    /// The team for which it is sent.
    pub tenant: Tenant<'a>,
    /// Its method.
    pub method: Method,
    /// Where it leads.
    pub url: &'a Url,
    /// Whether the URL may begin with http and lead to each address that may be reached, although no operator permits that: a
    /// workflow has it that was saved before https was required.
    pub may_use_http: bool,
    /// Its headers; the client adds `accept` and `user-agent` if they are missing.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Departing,
}

/// The head of an answer, and its body as it arrives.
pub struct Answer(Response<Incoming>);

/// Why there is no answer; the text is for the owner of the workflow, and without the URL, which may contain a token.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The team may not call the URL.
    #[error("cannot connect: {0}")]
    Refused(#[from] Refused),
    /// There was no connection in time.
    #[error("no connection within {} s", CONNECT_TIMEOUT.as_secs())]
    Slow,
    /// There was no connection.
    #[error("cannot connect: {0}")]
    NoConnection(String),
    /// The URL is none that can be sent.
    #[error("the request failed: {0}")]
    NoRequest(String),
    /// The connection failed before the end of the answer.
    #[error("the request failed: {0}")]
    Failed(String),
}

impl SendError {
    /// The error as a code, without text of the receiver.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Slow => "connect_timeout",
            Self::NoConnection(_) => "no_connection",
            Self::NoRequest(_) => "not_sendable",
            Self::Failed(_) => "no_answer",
        }
    }

    /// Whether the same request would fail in the same way again.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::NoRequest(_))
    }
}

impl Client {
    /// A client that reaches the allowed addresses.
    ///
    /// # Errors
    /// Fails if the TLS stack cannot be set up.
    pub fn new(allowed: Allowed) -> anyhow::Result<Self> {
        Self::with_roots(allowed, Vec::new())
    }

    /// A client that trusts these certificate authorities in PEM, in addition to those of the system.
    ///
    /// # Errors
    /// Fails if the text has no certificate or one that is not valid, or if the TLS stack cannot be set up.
    pub fn with_authorities(allowed: Allowed, pem: &[u8]) -> anyhow::Result<Self> {
        let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let roots = roots.context("the file has no PEM certificates")?;
        ensure!(!roots.is_empty(), "the file has no PEM certificates");
        Self::with_roots(allowed, roots)
    }

    fn with_roots(allowed: Allowed, roots: Vec<CertificateDer<'static>>) -> anyhow::Result<Self> {
        let teams = Cache::builder().max_capacity(TEAMS_CONNECTED).time_to_idle(IDLE_LIMIT).build();
        Ok(Self { allowed, tls: set_up_tls(roots)?, teams })
    }

    /// Which addresses it may reach.
    #[must_use]
    pub fn allowed(&self) -> &Allowed {
        &self.allowed
    }

    /// Sends a request, and returns the head of its answer. The caller limits the time.
    ///
    /// # Errors
    /// Fails if the address may not be reached, or if there is no answer.
    pub async fn send(&self, outgoing: Outgoing<'_>) -> Result<Answer, SendError> {
        self.allowed.check_url(outgoing.url, outgoing.tenant)?;
        let of = (outgoing.tenant.team_id, outgoing.may_use_http);
        let client = self.teams.get_with(of, async { self.of_team(of) }).await;
        let mut request = outgoing.into_request()?;
        Interim::count_on(&mut request);
        let response = client.request(request).await.map_err(|error| of_request(&error))?;
        if let Some(interim) = response.extensions().get::<Interim>() {
            interim.reset();
        }
        Ok(Answer(response))
    }

    fn of_team(&self, (team_id, may_use_http): Of) -> OfTeam {
        let connector = Connector { allowed: self.allowed.clone(), team_id, may_use_http, tls: self.tls.clone() };
        legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_LIMIT)
            .http1_max_buf_size(HEAD_LIMIT)
            .build(connector)
    }
}

impl Outgoing<'_> {
    fn into_request(self) -> Result<Request<Departing>, SendError> {
        let uri: Uri = self.url.as_str().parse().map_err(|error| SendError::NoRequest(format!("{error}")))?;
        let mut request = Request::new(self.body);
        *request.method_mut() = self.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers;
        let headers = request.headers_mut();
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        let agent = concat!("cronbox/", env!("CARGO_PKG_VERSION"));
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
        Ok(request)
    }
}

impl Answer {
    /// Its status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.0.status()
    }

    /// Its headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.0.headers()
    }

    /// Returns the first bytes of the body, at most `limit`, and reads no more of it.
    ///
    /// # Errors
    /// Fails if the connection fails before.
    pub async fn read_beginning(mut self, limit: usize) -> Result<Vec<u8>, SendError> {
        let mut bytes = Vec::new();
        while let Some(frame) = self.0.body_mut().frame().await {
            let frame = frame.map_err(|error| SendError::Failed(innermost(&error)))?;
            bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            if bytes.len() >= limit {
                bytes.truncate(limit);
                break;
            }
        }
        Ok(bytes)
    }
}

fn of_request(error: &legacy::Error) -> SendError {
    let mut cause = error.source();
    while let Some(deeper) = cause {
        match deeper.downcast_ref() {
            Some(ConnectError::Slow) => return SendError::Slow,
            Some(ConnectError::Unreachable(Unreachable::Refused(refused))) => {
                return SendError::Refused(refused.clone());
            }
            _ => cause = deeper.source(),
        }
    }
    match error.is_connect() {
        true => SendError::NoConnection(innermost(error)),
        false => SendError::Failed(innermost(error)),
    }
}

/// The innermost cause says what happened, for example `Connection refused`.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
