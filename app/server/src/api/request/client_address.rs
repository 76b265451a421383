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
/// no trusted network contains. Entries are bytes, because a proxy appends to the client's own line: a byte of the client
/// that is no text makes only its own entry unreadable.
pub(crate) fn client_address(headers: &HeaderMap, peer: IpAddr, trusted: &[IpNet], hops: Option<u8>) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(&address));
    if !is_trusted(peer) {
        return peer;
    }
    let lines = headers.get_all(FORWARDED_FOR).iter().rev();
    let entries = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
    let mut client = peer;
    for entry in entries.take(hops.map_or(usize::MAX, usize::from)) {
        // What is further to the left is not known to be true.
        let Some(address) = parse_address(entry) else { return client };
        client = address;
        if hops.is_none() && !is_trusted(client) {
            return client;
        }
    }
    client
}

/// Some proxies append the port, too.
fn parse_address(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry.trim_ascii()).ok()?;
    let address = text.parse().or_else(|_| text.parse::<SocketAddr>().map(|socket| socket.ip()));
    address.ok().map(|address| address.to_canonical())
}

/// Set by the proxy that ends TLS. It need not be a trusted one: a browser ignores `Strict-Transport-Security` in an answer by http.
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Whether the client used https. Each proxy appends how its own client came, so the first one counts.
pub(crate) fn came_by_https(headers: &HeaderMap) -> bool {
    let first = headers.get(FORWARDED_PROTO).and_then(|value| value.as_bytes().split(|byte| *byte == b',').next());
    first.is_some_and(|first| first.trim_ascii().eq_ignore_ascii_case(b"https"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn client(peer: &str, lines: &[&str]) -> String {
        client_behind(None, peer, lines)
    }

    fn client_behind(hops: Option<u8>, peer: &str, lines: &[&str]) -> String {
        let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        client_of_bytes(hops, peer, &lines)
    }

    fn client_of_bytes(hops: Option<u8>, peer: &str, lines: &[&[u8]]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, HeaderValue::from_bytes(line).unwrap());
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
        let one = |peer: &str, lines: &[&str]| client_behind(Some(1), peer, lines);
        assert_eq!(one("10.0.0.1", &["192.0.2.7, 10.0.2.50"]), "10.0.2.50", "a client within the trusted network");
        assert_eq!(one("10.0.0.1", &["192.0.2.7", "10.0.2.50"]), "10.0.2.50");
        assert_eq!(one("10.0.0.1", &["198.51.100.1, 203.0.113.9"]), "203.0.113.9");
        assert_eq!(one("10.0.0.1", &["192.0.2.7, unknown"]), "10.0.0.1", "no address: the proxy itself");
        assert_eq!(one("10.0.0.1", &["192.0.2.7, "]), "10.0.0.1");
        assert_eq!(one("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(one("192.0.2.1", &["203.0.113.9"]), "192.0.2.1", "any client can send the header");
        let two = |lines: &[&str]| client_behind(Some(2), "10.0.0.1", lines);
        assert_eq!(two(&["192.0.2.7, 10.0.2.50, 198.51.100.1"]), "10.0.2.50", "a proxy outside of the networks");
        assert_eq!(two(&["203.0.113.9"]), "203.0.113.9", "it came past the outer proxy");
        assert_eq!(two(&["203.0.113.9, unknown, 10.0.0.2"]), "10.0.0.2");
    }

    /// Else a client appeared as the proxy, and the networks of keys and the limits of addresses did not apply to it.
    #[test]
    fn unreadable_entries_hide_no_others() {
        for hops in [None, Some(1)] {
            for sent in [&b"\xff, 203.0.113.9"[..], b"\xc3\xa4,203.0.113.9", b"10.0.0.7\xff, 203.0.113.9:1234"] {
                assert_eq!(client_of_bytes(hops, "10.0.0.1", &[sent]), "203.0.113.9", "{hops:?} {sent:?}");
            }
            assert_eq!(client_of_bytes(hops, "10.0.0.1", &[b"\xff", b"203.0.113.9"]), "203.0.113.9");
            assert_eq!(client_of_bytes(hops, "10.0.0.1", &[b"203.0.113.9, \xff"]), "10.0.0.1", "the proxy's own doing");
        }
        assert_eq!(client_of_bytes(None, "10.0.0.1", &[b"\xff, 203.0.113.9, 10.0.0.2"]), "203.0.113.9");
        assert_eq!(client_of_bytes(Some(2), "10.0.0.1", &[b"\xff, 203.0.113.9, 10.0.0.2"]), "203.0.113.9");
    }

    /// The browser's own connection is the first that proxies name.
    #[test]
    fn the_first_proxy_saw_the_browser() {
        let came = |sent| came_by_https(&HeaderMap::from_iter([(FORWARDED_PROTO, HeaderValue::from_static(sent))]));
        assert!(came("https") && came(" HTTPS , http"));
        assert!(!came("http") && !came("http, https") && !came("") && !came_by_https(&HeaderMap::new()));
        let unreadable = HeaderValue::from_bytes(b"https, \xff").unwrap();
        assert!(
            came_by_https(&HeaderMap::from_iter([(FORWARDED_PROTO, unreadable)])),
            "what proxies append changes no first"
        );
    }
}
