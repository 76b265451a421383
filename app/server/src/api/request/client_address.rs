//! Steps 1 and 7 of 7: the address of a client behind proxies.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderName};
use ipnet::IpNet;

/// The header to which each proxy appends the address that it received the request from.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// Returns the address of the client: the rightmost one that no trusted proxy has, because what is left of it was written
/// by the client. A peer that is no trusted proxy names no other client.
pub(crate) fn client_address(headers: &HeaderMap, peer: IpAddr, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(&address));
    if !is_trusted(peer) {
        return peer;
    }
    let mut client = peer;
    let lines = headers.get_all(FORWARDED_FOR).iter().rev();
    for named in lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(',')) {
        // What is further to the left is not known to be true.
        let Some(address) = parse_address(named.trim()) else { return client };
        client = address;
        if !is_trusted(client) {
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
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, HeaderValue::from_static(line));
        }
        let trusted = ["10.0.0.0/8", "2001:db8:1::/48"].map(|network| network.parse().unwrap());
        client_address(&headers, peer.parse().unwrap(), &trusted).to_string()
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

    /// The browser's own connection is the first that proxies name.
    #[test]
    fn the_first_proxy_saw_the_browser() {
        let came = |sent| came_by_https(&HeaderMap::from_iter([(FORWARDED_PROTO, HeaderValue::from_static(sent))]));
        assert!(came("https") && came(" HTTPS , http"));
        assert!(!came("http") && !came("http, https") && !came("") && !came_by_https(&HeaderMap::new()));
    }
}
