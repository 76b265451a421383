//! Step 7 of 7: which addresses are public: what IANA's special-purpose registries leave, less what clouds reserve.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::special_purpose;

/// Addresses that no special-purpose registry lists, and that lead inside nevertheless.
const ADDITIONS: [Ipv4Net; 2] = [
    // Multicast, which has a registry of its own.
    Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4),
    // Azure's WireServer: metadata, certificates and DNS for the machine that asks.
    Ipv4Net::new_assert(Ipv4Addr::new(168, 63, 129, 16), 32),
];

/// Only these IPv6 addresses are routed on the internet: global unicast, and IPv4 addresses behind a NAT64.
const GLOBAL_V6: [Ipv6Net; 2] =
    [Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3), Ipv6Net::new_assert(NAT64, 96)];

const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

/// Whether a connection to `address` may be made, if an operator allows `networks` besides all public ones.
///
/// An IPv6 address that contains an IPv4 address is permitted only if both are.
pub(crate) fn is_permitted(address: IpAddr, networks: &[IpNet]) -> bool {
    let is_allowed = |address: IpAddr| networks.iter().any(|network| network.contains(&address));
    match address.to_canonical() {
        IpAddr::V4(v4) => is_public_v4(v4) || is_allowed(v4.into()),
        IpAddr::V6(v6) => {
            (is_public_v6(v6) || is_allowed(v6.into()))
                && carried_v4(v6).into_iter().flatten().all(|v4| is_permitted(v4.into(), networks))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(address: &str, networks: &[&str]) -> bool {
        let networks: Vec<IpNet> = networks.iter().map(|network| network.parse().unwrap()).collect();
        is_permitted(address.parse().unwrap(), &networks)
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
