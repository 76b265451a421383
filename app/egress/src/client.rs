//! Step 7 of 7: the HTTP client of all requests that leave the service.

use std::time::Duration;

use anyhow::Context as _;
use reqwest::{Method, RequestBuilder, redirect};
use url::Url;

use crate::allowed::Allowed;

/// How long a client may take to connect. The complete request has the workflow's timeout.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// One client for all requests: no redirects, no proxies, only permitted addresses.
#[derive(Clone)]
pub struct Client {
    client: reqwest::Client,
    allowed: Allowed,
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

    /// Begins a request.
    pub fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.client.request(method, url)
    }

    /// Which addresses it may reach.
    #[must_use]
    pub fn allowed(&self) -> &Allowed {
        &self.allowed
    }
}
