//! Step 7 of 7: which addresses an http action may reach.
//!
//! The URL of a tenant must not open the private network of the app. The client resolves a name once, refuses it if
//! *any* of its addresses is not public, and connects to the addresses that it checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use crate::address::is_permitted;

/// How long a name may take to be resolved when a workflow is saved.
const PATIENCE_AT_SAVE: Duration = Duration::from_secs(2);

/// Which addresses http actions may reach, and how names are resolved.
#[derive(Clone, Default)]
pub struct Allowed {
    networks: Arc<Vec<IpNet>>,
    names: Names,
}

/// Returns the addresses of a name.
pub type Answers = dyn Fn(&str) -> Vec<IpAddr> + Send + Sync;

/// Where a name's addresses come from.
#[derive(Clone, Default)]
pub enum Names {
    /// The machine's resolver.
    #[default]
    System,
    /// A given function, for example a test's that simulates a malicious name server.
    Given(Arc<Answers>),
}

/// The error that a workflow's owner reads when a URL leads to an address that is not public.
#[derive(Debug, thiserror::Error)]
#[error("{host} is not a public address; an operator can allow its network")]
pub struct NotPublic {
    /// The host as the URL has it.
    pub host: String,
}

impl Allowed {
    /// Allows these networks besides all public ones.
    #[must_use]
    pub fn new(networks: Vec<IpNet>) -> Self {
        Self { networks: Arc::new(networks), names: Names::System }
    }

    /// Replaces the resolver.
    #[must_use]
    pub fn with_names(self, names: Names) -> Self {
        Self { names, ..self }
    }

    /// Whether a connection to `address` may be made.
    #[must_use]
    pub fn permits_address(&self, address: IpAddr) -> bool {
        is_permitted(address, &self.networks)
    }

    /// Checks a literal address, which never reaches the resolver.
    ///
    /// # Errors
    /// Fails if the address may not be reached.
    pub fn check_literal(&self, url: &Url) -> Result<(), NotPublic> {
        match url.host() {
            Some(Host::Ipv4(v4)) => self.check_addresses(&v4.to_string(), &[v4.into()]),
            Some(Host::Ipv6(v6)) => self.check_addresses(&v6.to_string(), &[v6.into()]),
            Some(Host::Domain(_)) | None => Ok(()),
        }
    }

    /// Checks a URL when a workflow is saved. A name that cannot be resolved yet is checked when the action is sent.
    ///
    /// # Errors
    /// Fails if the address may not be reached.
    pub async fn check_now(&self, url: &Url) -> Result<(), NotPublic> {
        self.check_literal(url)?;
        let Some(Host::Domain(host)) = url.host() else { return Ok(()) };
        match tokio::time::timeout(PATIENCE_AT_SAVE, self.names.addresses(host)).await {
            Ok(Ok(found)) => self.check_addresses(host, &found),
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }

    /// One private address is enough to refuse a name: its name server chooses which of the addresses we connect to.
    fn check_addresses(&self, host: &str, found: &[IpAddr]) -> Result<(), NotPublic> {
        match found.iter().all(|address| self.permits_address(*address)) {
            true => Ok(()),
            false => Err(NotPublic { host: host.to_owned() }),
        }
    }
}

/// Each connection resolves its name here once, and uses the addresses that were checked here.
impl Resolve for Allowed {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.clone();
        Box::pin(async move {
            let found = allowed.names.addresses(name.as_str()).await?;
            allowed.check_addresses(name.as_str(), &found)?;
            Ok(Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

impl Names {
    async fn addresses(&self, host: &str) -> std::io::Result<Vec<IpAddr>> {
        match self {
            // RFC 6761: `localhost` must not be sent to a name server.
            _ if is_this_machine(host) => Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]),
            Names::System => Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect()),
            Names::Given(answer) => Ok(answer(host)),
        }
    }
}

fn is_this_machine(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    host.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case("localhost"))
}
