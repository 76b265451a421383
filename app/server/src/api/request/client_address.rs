//! Steps 1 and 7 of 7: the address of a client behind proxies.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderName};
use ipnet::IpNet;

/// The header to which each proxy appends the address that it received the request from.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// Returns the address of the client. A peer that is no trusted proxy names no other client.
///
/// With a number of proxies it is the entry that the outermost one has appended, because what is left of it was written by
/// the client, also by a client whose own address is in a trusted network. Without a number it is the rightmost entry that
/// no trusted network contains.
pub(crate) fn client_address(headers: &HeaderMap, peer: IpAddr, trusted: &[IpNet], hops: Option<u8>) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(&address));
    if !is_trusted(peer) {
        return peer;
    }
    let lines = headers.get_all(FORWARDED_FOR).iter().rev();
    let entries = lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(','));
    let mut client = peer;
    for entry in entries.take(hops.map_or(usize::MAX, usize::from)) {
        // What is further to the left is not known to be true.
        let Some(address) = parse_address(entry.trim()) else { return client };
        client = address;
        if hops.is_none() && !is_trusted(client) {
            return client;
        }
    }
    client
}

/// Some proxies append the port, too.
fn parse_address(text: &str) -> Option<IpAddr> {
    let address = text.parse().or_else(|_| text.parse::<SocketAddr>().map(|socket| socket.ip()));
    address.ok().map(|address| address.to_canonical())
}

/// Set by the proxy that ends TLS. It need not be a trusted one: a browser ignores `Strict-Transport-Security` in an answer by http.
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Whether the client used https. Each proxy appends how its own client came, so the first one counts.
pub(crate) fn came_by_https(headers: &HeaderMap) -> bool {
    let sent = headers.get(FORWARDED_PROTO).and_then(|value| value.to_str().ok()).unwrap_or_default();
    sent.split(',').next().is_some_and(|first| first.trim().eq_ignore_ascii_case("https"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn client(peer: &str, lines: &[&'static str]) -> String {
        client_behind(None, peer, lines)
    }

    fn client_behind(hops: Option<u8>, peer: &str, lines: &[&'static str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, HeaderValue::from_static(line));
        }
        let trusted = ["10.0.0.0/8", "2001:db8:1::/48"].map(|network| network.parse().unwrap());
        client_address(&headers, peer.parse().unwrap(), &trusted, hops).to_string()
    }

    #[test]
    fn only_trusted_proxies_name_the_client() {
        assert_eq!(client("192.0.2.1", &["203.0.113.9"]), "192.0.2.1", "any client can send the header");
        assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &["203.0.113.9"]), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["198.51.100.1, 203.0.113.9"]), "203.0.113.9", "what the client wrote is left");
        assert_eq!(client("10.0.0.1", &["198.51.100.1", "203.0.113.9, 10.0.0.2"]), "203.0.113.9");
        assert_eq!(client("2001:db8:1::1", &["[2001:db8:2::9]:443"]), "2001:db8:2::9");
        assert_eq!(client("10.0.0.1", &["::ffff:203.0.113.9"]), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["203.0.113.9:1234"]), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["203.0.113.9, unknown"]), "10.0.0.1", "no address: the proxy itself");
        assert_eq!(client("10.0.0.1", &["10.0.0.3, 10.0.0.2"]), "10.0.0.3", "a client within the trusted network");
    }

    /// A trusted network may contain clients, which must not name another client.
    #[test]
    fn counted_proxies_name_the_client() {
        let one = |peer: &str, lines: &[&'static str]| client_behind(Some(1), peer, lines);
        assert_eq!(one("10.0.0.1", &["192.0.2.7, 10.0.2.50"]), "10.0.2.50", "a client within the trusted network");
        assert_eq!(one("10.0.0.1", &["192.0.2.7", "10.0.2.50"]), "10.0.2.50");
        assert_eq!(one("10.0.0.1", &["198.51.100.1, 203.0.113.9"]), "203.0.113.9");
        assert_eq!(one("10.0.0.1", &["192.0.2.7, unknown"]), "10.0.0.1", "no address: the proxy itself");
        assert_eq!(one("10.0.0.1", &["192.0.2.7, "]), "10.0.0.1");
        assert_eq!(one("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(one("192.0.2.1", &["203.0.113.9"]), "192.0.2.1", "any client can send the header");
        let two = |lines: &[&'static str]| client_behind(Some(2), "10.0.0.1", lines);
        assert_eq!(two(&["192.0.2.7, 10.0.2.50, 198.51.100.1"]), "10.0.2.50", "a proxy outside of the networks");
        assert_eq!(two(&["203.0.113.9"]), "203.0.113.9", "it came past the outer proxy");
        assert_eq!(two(&["203.0.113.9, unknown, 10.0.0.2"]), "10.0.0.2");
    }

    /// The browser's own connection is the first that proxies name.
    #[test]
    fn the_first_proxy_saw_the_browser() {
        let came = |sent| came_by_https(&HeaderMap::from_iter([(FORWARDED_PROTO, HeaderValue::from_static(sent))]));
        assert!(came("https") && came(" HTTPS , http"));
        assert!(!came("http") && !came("http, https") && !came("") && !came_by_https(&HeaderMap::new()));
    }
}
