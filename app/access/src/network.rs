//! Steps 1 and 7 of 7: by which address a client is counted.

use std::net::{IpAddr, Ipv6Addr};

/// The part of an IPv6 address that one client cannot choose: a provider gives each customer at least a /64.
const CUSTOMER_MASK: u128 = !0 << 64;

/// The address by which a client is counted: an IPv4 address, or the /64 of an IPv6 address.
#[must_use]
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & CUSTOMER_MASK).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_clients_are_counted_by_network() {
        for (address, network) in
            [("192.0.2.1", "192.0.2.1"), ("::ffff:192.0.2.1", "192.0.2.1"), ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::")]
        {
            assert_eq!(network_of(address.parse().unwrap()), network.parse::<IpAddr>().unwrap());
        }
    }
}
