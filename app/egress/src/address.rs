//! Step 7 of 7: which addresses are public: what IANA's special-purpose registries leave, less what clouds reserve.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::special_purpose;

/// Addresses that no special-purpose registry lists, and that lead inside nevertheless.
const ADDITIONS: [Ipv4Net; 2] = [
    // Multicast, which has a registry of its own.
    Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4),
    WIRE_SERVER,
];

/// Azure's `WireServer`: metadata, certificates and DNS for the machine that asks.
const WIRE_SERVER: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(168, 63, 129, 16), 32);

/// Only these IPv6 addresses are routed on the internet: global unicast, and IPv4 addresses behind a NAT64.
const GLOBAL_V6: [Ipv6Net; 2] =
    [Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3), Ipv6Net::new_assert(NAT64, 96)];

const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

/// Where the services of an operator are: on this machine, or in a private network.
const PRIVATE: [IpNet; 7] = [
    net_v4([10, 0, 0, 0], 8),
    net_v4([100, 64, 0, 0], 10),
    net_v4([127, 0, 0, 0], 8),
    net_v4([172, 16, 0, 0], 12),
    net_v4([192, 168, 0, 0], 16),
    net_v6(Ipv6Addr::LOCALHOST, 128),
    net_v6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
];

/// The addresses at which clouds serve the metadata and the credentials of the machine that asks. A network that contains
/// them does not open them.
const METADATA: [IpNet; 9] = [
    // Link-local: AWS, Azure, Google Cloud and others, and the credentials of containers on AWS.
    net_v4([169, 254, 0, 0], 16),
    net_v6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    IpNet::V4(WIRE_SERVER),
    // Alibaba Cloud.
    net_v4([100, 100, 100, 200], 32),
    // Oracle Cloud Classic.
    net_v4([192, 0, 0, 192], 32),
    // AWS: metadata, credentials of pods, DNS and time.
    net_v6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 32),
    // Google Cloud.
    net_v6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128),
    // Oracle Cloud.
    net_v6(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe), 128),
    // Scaleway.
    net_v6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42), 128),
];

/// The networks that may be reached besides all public addresses.
#[derive(Clone, Debug)]
pub(crate) enum Inside {
    /// These, for the URLs of tenants.
    Allowed(Arc<Vec<IpNet>>),
    /// Private networks and this machine, for the URLs of operators.
    Private,
}

impl Default for Inside {
    fn default() -> Self {
        Self::Allowed(Arc::default())
    }
}

impl Inside {
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Allowed(networks) if networks.is_empty())
    }

    /// Whether it contains the address, which is in its canonical form.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let networks: &[IpNet] = match self {
            Self::Allowed(networks) => networks,
            Self::Private => &PRIVATE,
        };
        networks.iter().any(|network| opens(network, address))
    }
}

/// Whether a network that is allowed opens the address. One that is larger than a block of [`METADATA`] does not open the
/// block: who allows `fc00::/7` means private networks. Who allows `fd00:ec2::254/128` means that address.
fn opens(network: &IpNet, address: IpAddr) -> bool {
    network.contains(&address)
        && METADATA.iter().filter(|block| block.contains(&address)).all(|block| block.contains(network))
}

/// Whether a connection to `address` may be made: it is public, or inside the networks that are allowed.
///
/// An IPv6 address that contains an IPv4 address is permitted only if both are.
pub(crate) fn is_permitted(address: IpAddr, inside: &Inside) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_public_v4(v4) || inside.contains(v4.into()),
        IpAddr::V6(v6) => {
            (is_public_v6(v6) || inside.contains(v6.into()))
                && carried_v4(v6).into_iter().flatten().all(|v4| is_permitted(v4.into(), inside))
        }
    }
}

/// A block of the registry counts although a smaller one in it is public: those are anycast addresses of network
/// equipment, such as 192.0.0.9.
fn is_public_v4(v4: Ipv4Addr) -> bool {
    !special_purpose::V4.iter().chain(&ADDITIONS).any(|block| block.contains(&v4))
}

fn is_public_v6(v6: Ipv6Addr) -> bool {
    GLOBAL_V6.iter().any(|block| block.contains(&v6)) && !special_purpose::V6.iter().any(|block| block.contains(&v6))
}

/// The IPv4 addresses that an IPv6 address contains, to which a relay or translator would pass a connection on.
fn carried_v4(v6: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let [_, _, _, _, _, _, g, h] = v6.segments();
    let bytes = v6.octets();
    match v6.segments() {
        // IPv4-compatible, RFC 4291; `::` and `::1` are no such address.
        [0, 0, 0, 0, 0, 0, _, _] if g > 0 => [Some(v4(g, h)), None],
        // NAT64, RFC 6052.
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => [Some(v4(g, h)), None],
        // NAT64 of one network, RFC 8215: as /48, which leaves out the bits 64 to 71, or as /96.
        [0x64, 0xff9b, 1, _, _, _, 0, 0] => [Some(Ipv4Addr::new(bytes[6], bytes[7], bytes[9], bytes[10])), None],
        [0x64, 0xff9b, 1, ..] => [Some(v4(g, h)), None],
        // Teredo, RFC 4380: the server, and the client with all bits inverted.
        [0x2001, 0, c, d, ..] => [Some(v4(c, d)), Some(v4(!g, !h))],
        // 6to4, RFC 3056.
        [0x2002, b, c, ..] => [Some(v4(b, c)), None],
        _ => [None, None],
    }
}

fn v4(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))
}

const fn net_v4([a, b, c, d]: [u8; 4], prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix))
}

const fn net_v6(address: Ipv6Addr, prefix: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(address, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(address: &str, networks: &[&str]) -> bool {
        let networks: Vec<IpNet> = networks.iter().map(|network| network.parse().unwrap()).collect();
        is_permitted(address.parse().unwrap(), &Inside::Allowed(Arc::new(networks)))
    }

    #[test]
    fn nothing_inside_is_public() {
        let inside = [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.8.8.8",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.8",
            "192.0.0.9",
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
            "64:ff9b::a83f:8110",
            "64:ff9b:1::808:808",
            "2001::1",
            "2001:1::1",
            "2001:0:808:808:0:0:f7f7:f7f7",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "3fff:fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ];
        for address in inside {
            assert!(!permits(address, &[]), "{address} must be refused");
        }
    }

    #[test]
    fn public_and_allowed_addresses_are_permitted() {
        let loopback = ["127.0.0.0/8"];
        let public = ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "3fff:1000::1", "64:ff9b::808:808"];
        for address in public.into_iter().chain(["127.0.0.1", "::ffff:127.0.0.1"]) {
            assert!(permits(address, &loopback), "{address} must be permitted");
        }
        assert!(!permits("10.0.0.1", &loopback));
    }

    /// Metadata of a machine contains its credentials. It is at no address that an operator would name.
    #[test]
    fn operators_reach_private_addresses_without_metadata() {
        let permits = |address: &str| is_permitted(address.parse().unwrap(), &Inside::Private);
        for address in [
            "93.184.216.34",
            "2606:4700::1111",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.199",
            "127.0.0.1",
            "127.8.8.8",
            "172.31.255.255",
            "192.168.1.1",
            "::1",
            "::ffff:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "fc00::1",
            "fd00:ec1::254",
            "fd20:ce::253",
        ] {
            assert!(permits(address), "{address} must be permitted");
        }
        for address in [
            "0.0.0.0",
            "100.100.100.200",
            "168.63.129.16",
            "169.254.0.1",
            "169.254.169.254",
            "169.254.170.2",
            "192.0.0.192",
            "192.0.2.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "fd00:42::42",
            "::169.254.169.254",
            "::ffff:169.254.169.254",
            "::ffff:100.100.100.200",
            "64:ff9b::169.254.169.254",
            "64:ff9b::100.100.100.200",
            "64:ff9b:1::a9fe:a9fe",
            "2002:a9fe:a9fe::",
            "fd00:ec2::23",
            "fd00:ec2::254",
            "fd00:c1::a9fe:a9fe",
            "fd20:ce::254",
            "fe80::1",
            "fe80::a9fe:a9fe",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!permits(address), "{address} must be refused");
        }
    }

    /// An operator who allows the private networks does not open the credentials of the machine to every team.
    #[test]
    fn large_networks_contain_no_metadata() {
        let everything = ["0.0.0.0/0", "::/0"];
        let refused: &[(&str, &[&str])] = &[
            ("fd00:ec2::254", &["10.0.0.0/8", "fc00::/7"]),
            ("fd00:ec2::23", &["fd00::/8"]),
            ("fd20:ce::254", &["fc00::/7"]),
            ("fd00:c1::a9fe:a9fe", &["fd00:c1::/32"]),
            ("fd00:42::42", &everything),
            ("fe80::a9fe:a9fe", &["fe80::/9"]),
            ("100.100.100.200", &["100.64.0.0/10"]),
            ("::ffff:100.100.100.200", &["100.64.0.0/10"]),
            ("64:ff9b::100.100.100.200", &["100.64.0.0/10"]),
            ("169.254.169.254", &["169.0.0.0/8"]),
            ("169.254.170.2", &everything),
            ("::169.254.169.254", &everything),
            ("2002:a9fe:a9fe::", &everything),
            ("168.63.129.16", &["168.63.0.0/16"]),
            ("192.0.0.192", &["192.0.0.0/24"]),
        ];
        for (address, networks) in refused {
            assert!(!permits(address, networks), "{address} must be refused in {networks:?}");
        }
        for (address, network) in [
            ("fd00:ec1::254", "fc00::/7"),
            ("100.100.100.199", "100.64.0.0/10"),
            ("192.0.0.8", "192.0.0.0/24"),
            ("240.0.0.1", "0.0.0.0/0"),
            // Who lists the address itself means it.
            ("fd00:ec2::254", "fd00:ec2::254/128"),
            ("fd00:ec2::23", "fd00:ec2::/32"),
            ("169.254.169.254", "169.254.169.254/32"),
            ("169.254.7.7", "169.254.0.0/16"),
            ("168.63.129.16", "168.63.129.16/32"),
        ] {
            assert!(permits(address, &[network]), "{address} must be permitted in {network}");
        }
    }

    /// Who allows a network of relays or translators does not allow what is behind them.
    #[test]
    fn carried_addresses_are_judged_too() {
        let relays = ["2002::/16", "2001::/32", "64:ff9b:1::/48", "::/96"];
        let inside = [
            "2002:7f00:1::",
            "2001:0:808:808::80ff:fffe",
            "2001:0:7f00:1::f7f7:f7f7",
            "64:ff9b:1::7f00:1",
            "64:ff9b:1:7f00:0:100::",
            "::127.0.0.1",
        ];
        for address in inside {
            assert!(!permits(address, &relays), "{address} must be refused");
        }
        for address in ["2002:808:808::", "2001:0:808:808::f7f7:f7f7", "::8.8.8.8", "::1", "64:ff9b:1:808:8:800::"] {
            assert!(permits(address, &relays), "{address} must be permitted");
        }
        assert!(permits("64:ff9b::7f00:1", &["127.0.0.0/8"]));
    }
}
