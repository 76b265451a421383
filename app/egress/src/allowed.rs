//! Step 7 of 7: which addresses a request may reach.
//!
//! The URL of a tenant must not open the private network of the app. The client resolves a name once, refuses it if
//! *any* of its addresses is not public, and connects to the addresses that it checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use url::{Host, Url};

use crate::address::is_permitted;
use crate::resolver::{LookupError, Resolver};

/// How long a name may take to be resolved when a workflow is saved.
const PATIENCE_AT_SAVE: Duration = Duration::from_secs(2);

/// Which addresses requests may reach, and how names are resolved.
#[derive(Clone, Default)]
pub struct Allowed {
    networks: Arc<Vec<IpNet>>,
    names: Names,
}

/// Returns the addresses of a name.
pub type Answers = dyn Fn(&str) -> Vec<IpAddr> + Send + Sync;

/// Where a name's addresses come from.
#[derive(Clone)]
pub enum Names {
    /// Name servers.
    Resolver(Resolver),
    /// A given function, for example a test's that simulates a malicious name server.
    Given(Arc<Answers>),
}

/// The error that a workflow's owner reads when a URL leads to an address that is not public.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{host} is not a public address; an operator can allow its network")]
pub struct NotPublic {
    /// The host as the URL has it.
    pub host: String,
}

/// Why a host cannot be connected to.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    /// It may not be reached.
    #[error(transparent)]
    NotPublic(#[from] NotPublic),
    /// It has no address now.
    #[error(transparent)]
    Lookup(#[from] LookupError),
}

impl Allowed {
    /// Allows these networks besides all public ones.
    #[must_use]
    pub fn new(networks: Vec<IpNet>) -> Self {
        Self { networks: Arc::new(networks), names: Names::default() }
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
        literal_address(url).map_or(Ok(()), |address| self.check_addresses(&address.to_string(), &[address]))
    }

    /// Checks a URL when a team saves a workflow. A name that cannot be resolved yet is checked when the action is sent.
    ///
    /// # Errors
    /// Fails if the address may not be reached.
    pub async fn check_now(&self, url: &Url, team_id: Option<i64>) -> Result<(), NotPublic> {
        self.check_literal(url)?;
        let Some(Host::Domain(host)) = url.host() else { return Ok(()) };
        match tokio::time::timeout(PATIENCE_AT_SAVE, self.names.addresses(team_id, host)).await {
            Ok(Ok(found)) => self.check_addresses(host, &found),
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }

    /// Whether [`Self::check_now`] asks a name server.
    pub async fn must_resolve(&self, url: &Url) -> bool {
        match (url.host(), &self.names) {
            (Some(Host::Domain(host)), Names::Resolver(resolver)) => {
                !is_this_machine(host) && !resolver.is_known(host).await
            }
            _ => false,
        }
    }

    /// Returns the addresses of a host, all of which may be reached. Each connection asks once, and uses only them.
    ///
    /// # Errors
    /// Fails if one of them may not be reached, or if there is none.
    pub(crate) async fn find_addresses(&self, team_id: Option<i64>, host: &str) -> Result<Vec<IpAddr>, Unreachable> {
        let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let found = match literal.parse() {
            Ok(address) => vec![address],
            Err(_) => self.names.addresses(team_id, host).await?,
        };
        self.check_addresses(host, &found)?;
        Ok(found)
    }

    /// One private address is enough to refuse a name: its name server chooses which of the addresses we connect to.
    fn check_addresses(&self, host: &str, found: &[IpAddr]) -> Result<(), NotPublic> {
        match found.iter().all(|address| self.permits_address(*address)) {
            true => Ok(()),
            false => Err(NotPublic { host: host.to_owned() }),
        }
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::Resolver(Resolver::default())
    }
}

impl Names {
    async fn addresses(&self, team_id: Option<i64>, host: &str) -> Result<Vec<IpAddr>, LookupError> {
        match self {
            // RFC 6761: `localhost` must not be sent to a name server.
            _ if is_this_machine(host) => Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]),
            Names::Resolver(resolver) => resolver.find_addresses(team_id, host).await,
            Names::Given(answer) => Ok(answer(host)),
        }
    }
}

fn literal_address(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(v4) => Some(v4.into()),
        Host::Ipv6(v6) => Some(v6.into()),
        Host::Domain(_) => None,
    }
}

fn is_this_machine(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    host.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case("localhost"))
}
