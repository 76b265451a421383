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
        let address = address.to_canonical();
        is_public(address) || self.networks.iter().any(|network| network.contains(&address))
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

/// Global unicast, by the IANA special-purpose registries. An address in doubt is not public.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    !(a == 0
        || v4.is_loopback()
        || v4.is_private()
        || v4.is_link_local()
        || v4.is_documentation()
        || v4.is_multicast()
        || (a == 100 && (64..128).contains(&b)) // carrier-grade NAT, RFC 6598
        || (a == 192 && b == 0 && c == 0) // IETF protocol assignments, RFC 6890
        || (a == 192 && b == 88 && c == 99) // 6to4 relays, RFC 7526
        || (a == 198 && (18..20).contains(&b)) // benchmarks, RFC 2544
        || a >= 240) // reserved and broadcast, RFC 1112
}

fn is_public_v6(v6: Ipv6Addr) -> bool {
    let segments = v6.segments();
    // Only 2000::/3 is global unicast. Some ranges in it are reserved or contain an IPv4 address, which may be private.
    (segments[0] & 0xe000) == 0x2000
        && !(segments[0] == 0x2001 && segments[1] < 0x0200) // Teredo, ORCHID and other protocol assignments
        && !(segments[0] == 0x2001 && segments[1] == 0x0db8) // documentation
        && segments[0] != 0x2002 // 6to4 carries a v4 address
        && !(segments[0] == 0x3fff && segments[1] < 0x1000) // documentation, RFC 9637
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_inside_is_public() {
        let inside = [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.8.8.8",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
        ];
        let allowed = Allowed::default();
        for address in inside {
            assert!(!allowed.permits_address(address.parse().unwrap()), "{address} must be refused");
        }
    }

    #[test]
    fn public_and_allowed_addresses_are_permitted() {
        let allowed = Allowed::new(vec!["127.0.0.0/8".parse().unwrap()]);
        for address in ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "127.0.0.1", "::ffff:127.0.0.1"] {
            assert!(allowed.permits_address(address.parse().unwrap()), "{address} must be permitted");
        }
        assert!(!allowed.permits_address("10.0.0.1".parse().unwrap()));
    }
}
