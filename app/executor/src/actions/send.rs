//! Step 7 of 7: the HTTP client of all actions, and the inputs of each request.

use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use reqwest::redirect;
use workflows::signing::SigningSecret;

use super::Departure;
use super::address::Allowed;

/// How long a client may take to connect. The complete request has the workflow's timeout.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// One client for all actions: no redirects, no proxies, only permitted addresses.
#[derive(Clone)]
pub struct Client {
    pub(super) client: reqwest::Client,
    pub(super) allowed: Allowed,
}

impl Client {
    /// A client that reaches public addresses and the allowed networks.
    ///
    /// # Errors
    /// Fails if the TLS stack cannot be set up.
    pub fn new(allowed: Allowed) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .dns_resolver(std::sync::Arc::new(allowed.clone()))
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("cronbox/", env!("CARGO_PKG_VERSION")))
            .build()
            .context("cannot set up the HTTP client")?;
        Ok(Self { client, allowed })
    }
}

/// What an action needs to be sent.
pub struct Sender<'a> {
    /// The client of all actions.
    pub client: &'a Client,
    /// The secrets that sign it: one, and during an overlap the previous one.
    pub secrets: &'a [SigningSecret],
    /// When it is sent.
    pub now: DateTime<Utc>,
    /// Whether it may still be sent, and whether it was.
    pub departure: &'a Departure,
}
