//! Step 7 of 7: which addresses a request may reach.
//!
//! The URL of a tenant must not open the private network of the app. The client resolves a name once, refuses it if
//! *any* of its addresses is not public, and connects to the addresses that it checked. The URL of an operator may lead
//! to a private network, but not to the metadata of the machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use url::{Host, Url};

use crate::address::{Inside, is_permitted};
use crate::hosts::is_listed;
use crate::ports::Ports;
use crate::resolver::{LookupError, Resolver};

/// How long a name may take to be resolved when a workflow is saved.
const PATIENCE_AT_SAVE: Duration = Duration::from_secs(2);

/// Which addresses requests may reach, and how names are resolved.
#[derive(Clone, Default)]
pub struct Allowed {
    inside: Inside,
    allows_http: bool,
    ports: Arc<Ports>,
    names: Names,
}

/// The team for which a request is sent.
#[derive(Clone, Copy, Debug)]
pub struct Tenant<'a> {
    /// The team; `None` = the service itself.
    pub team_id: Option<i64>,
    /// The hosts that the team may call; empty = every host.
    pub hosts: &'a [String],
}

/// How the bytes of a connection travel, which decides with its addresses whether it may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Encrypted.
    Encrypted,
    /// Unencrypted.
    ClearText,
    /// Unencrypted, for a URL that was saved before https was required.
    ExcusedClearText,
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

/// Why a URL may not be called; the workflow's owner reads it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The host has an address that is not public.
    #[error("{0} is not a public address; an operator can allow its network")]
    NotPublic(String),
    /// The host has an address at which no service of an operator is.
    #[error("{0} is neither a public nor a private address, or it serves the metadata of a machine")]
    NotPrivate(String),
    /// The port is none of those that an operator permits.
    #[error("port {0} is not permitted; an operator can permit it")]
    Port(u16),
    /// The host is none of those that an admin has listed for the team.
    #[error("{0} is none of the hosts that the team may call; an admin can add it")]
    Host(String),
    /// The request and its secrets would be sent unencrypted.
    #[error("the URL must begin with https://; an operator can permit http")]
    Http,
}

/// Why a host cannot be connected to.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    /// It may not be reached.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It has no address now.
    #[error(transparent)]
    Lookup(#[from] LookupError),
}

impl Allowed {
    /// Allows these networks besides all public ones.
    #[must_use]
    pub fn new(networks: Vec<IpNet>) -> Self {
        Self { inside: Inside::Allowed(Arc::new(networks)), ..Self::default() }
    }

    /// For URLs that an operator sets, never for those of a tenant: allows private networks and this machine besides all
    /// public addresses, but not link-local addresses and others at which clouds serve metadata. The caller decides whether
    /// the URL may begin with http.
    #[must_use]
    pub fn for_operators() -> Self {
        Self { inside: Inside::Private, allows_http: true, ..Self::default() }
    }

    /// Replaces the resolver.
    #[must_use]
    pub fn with_names(self, names: Names) -> Self {
        Self { names, ..self }
    }

    /// Whether a URL may begin with http and lead to another network than the allowed ones.
    #[must_use]
    pub fn with_http(self, allows_http: bool) -> Self {
        Self { allows_http, ..self }
    }

    /// Replaces the ports.
    #[must_use]
    pub fn with_ports(self, ports: Ports) -> Self {
        Self { ports: Arc::new(ports), ..self }
    }

    /// Whether a connection to `address` may be made.
    #[must_use]
    pub fn permits_address(&self, address: IpAddr) -> bool {
        is_permitted(address, &self.inside)
    }

    /// Checks what a URL says itself: its port, its host, and a literal address. No name is resolved.
    ///
    /// # Errors
    /// Fails if the team may not call it.
    pub fn check_url(&self, url: &Url, tenant: Tenant<'_>) -> Result<(), Refused> {
        if let Some(address) = literal_address(url) {
            self.check_addresses(&address.to_string(), &[address])?;
        }
        let port = url.port_or_known_default().unwrap_or_default();
        if !self.ports.permit(port) {
            return Err(Refused::Port(port));
        }
        check_host(url, tenant.hosts)
    }

    /// Checks a URL when a team saves a workflow. A name that cannot be resolved yet is checked when the action is sent.
    ///
    /// # Errors
    /// Fails if the team may not call it, or if the request would be sent unencrypted to a network that no operator allows.
    pub async fn check_now(&self, url: &Url, tenant: Tenant<'_>) -> Result<(), Refused> {
        self.check_url(url, tenant)?;
        let is_clear_text = url.scheme() == "http";
        if is_clear_text && !self.allows_http && self.inside.is_empty() {
            return Err(Refused::Http);
        }
        let found = self.addresses_now(url, tenant.team_id).await;
        self.check_addresses(url.host_str().unwrap_or_default(), &found)?;
        if is_clear_text { self.check_clear_text(&found) } else { Ok(()) }
    }

    /// The addresses of a host; none if its name cannot be resolved now.
    async fn addresses_now(&self, url: &Url, team_id: Option<i64>) -> Vec<IpAddr> {
        if let Some(address) = literal_address(url) {
            return vec![address];
        }
        let resolving = self.names.addresses(team_id, url.host_str().unwrap_or_default());
        tokio::time::timeout(PATIENCE_AT_SAVE, resolving).await.map_or_else(|_| Vec::new(), Result::unwrap_or_default)
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

    /// Returns the addresses of a host, all of which may be reached so. Each connection asks once, and uses only them.
    ///
    /// # Errors
    /// Fails if one of them may not be reached, or not unencrypted, or if there is none.
    pub(crate) async fn find_addresses(
        &self,
        team_id: Option<i64>,
        host: &str,
        transport: Transport,
    ) -> Result<Vec<IpAddr>, Unreachable> {
        let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let found = match literal.parse() {
            Ok(address) => vec![address],
            Err(_) => self.names.addresses(team_id, host).await?,
        };
        self.check_addresses(host, &found)?;
        if transport == Transport::ClearText {
            self.check_clear_text(&found)?;
        }
        Ok(found)
    }

    /// What is sent unencrypted stays in the allowed networks, unless an operator permits more.
    fn check_clear_text(&self, found: &[IpAddr]) -> Result<(), Refused> {
        let is_inside = |address: &IpAddr| self.inside.contains(address.to_canonical());
        let stays_inside = !found.is_empty() && found.iter().all(is_inside);
        if self.allows_http || stays_inside { Ok(()) } else { Err(Refused::Http) }
    }

    /// One private address is enough to refuse a name: its name server chooses which of the addresses we connect to.
    fn check_addresses(&self, host: &str, found: &[IpAddr]) -> Result<(), Refused> {
        if found.iter().all(|address| self.permits_address(*address)) {
            return Ok(());
        }
        Err(match self.inside {
            Inside::Allowed(_) => Refused::NotPublic(host.to_owned()),
            Inside::Private => Refused::NotPrivate(host.to_owned()),
        })
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

/// Checks the host of a URL against those that a team may call.
///
/// # Errors
/// Fails if it is none of them.
pub fn check_host(url: &Url, hosts: &[String]) -> Result<(), Refused> {
    let host = url.host_str().unwrap_or_default();
    if is_listed(hosts, host) { Ok(()) } else { Err(Refused::Host(host.to_owned())) }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// One bad address is enough, whether the URL or a name server says it.
    #[tokio::test]
    async fn operators_names_lead_to_no_metadata() {
        let names = Names::Given(Arc::new(|host: &str| {
            let found = match host {
                "private.example" => &["10.0.0.1", "fd12::1"][..],
                "mixed.example" => &["10.0.0.1", "169.254.169.254"],
                _ => &["fd00:ec2::254"],
            };
            found.iter().map(|address| address.parse().unwrap()).collect()
        }));
        let allowed = Allowed::for_operators().with_names(names);
        for host in ["private.example", "localhost", "127.0.0.1", "[::1]", "192.168.0.1", "93.184.216.34"] {
            assert!(allowed.find_addresses(None, host, Transport::ClearText).await.is_ok(), "{host}");
        }
        let service = Tenant { team_id: None, hosts: &[] };
        for host in ["mixed.example", "metadata.example", "169.254.169.254", "[fd00:ec2::254]", "[fe80::1]"] {
            let refused = allowed.find_addresses(None, host, Transport::Encrypted).await.unwrap_err().to_string();
            assert!(refused.contains("the metadata of a machine"), "{refused}");
            let url = format!("https://{host}/").parse().unwrap();
            assert_eq!(allowed.check_url(&url, service).is_ok(), host.ends_with(".example"), "{host}");
        }
    }
}
