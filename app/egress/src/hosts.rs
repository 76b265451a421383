//! Step 7 of 7: which hosts a team may call, if an admin has listed any.

use url::Host;

/// How many hosts a team may list.
pub const MOST_HOSTS: usize = 100;

/// Returns a host as it is stored: `api.example.com`, `*.example.com` for all names below it, or an address.
#[must_use]
pub fn parse_host(text: &str) -> Option<String> {
    match text.strip_prefix("*.") {
        Some(parent) => match Host::parse(parent).ok()? {
            Host::Domain(name) if !name.contains('*') => Some(format!("*.{}", without_dot(&name))),
            _ => None,
        },
        None => Some(without_dot(&Host::parse(text).ok()?.to_string()).to_owned()).filter(|host| !host.contains('*')),
    }
    .filter(|host| host.len() <= 253 && !host.is_empty())
}

/// Whether a team with these hosts may call `host`; without any, it may call every host.
#[must_use]
pub fn is_listed(hosts: &[String], host: &str) -> bool {
    let host = without_dot(host);
    hosts.is_empty()
        || hosts.iter().any(|listed| match listed.strip_prefix('*') {
            Some(parent) => host.len() > parent.len() && host.ends_with(parent),
            None => listed == host,
        })
}

fn without_dot(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_hosts_are_called() {
        let hosts: Vec<String> = ["API.example.com.", "*.Hooks.example", "1.1.1.1", "[2606:4700::1111]"]
            .map(|host| parse_host(host).unwrap())
            .into();
        for host in [
            "api.example.com",
            "api.example.com.",
            "a.hooks.example",
            "a.b.hooks.example",
            "1.1.1.1",
            "[2606:4700::1111]",
        ] {
            assert!(is_listed(&hosts, host), "{host}");
        }
        for host in [
            "example.com",
            "hooks.example",
            "evilhooks.example",
            "xapi.example.com",
            "api.example.com.evil.example",
            "1.1.1.2",
        ] {
            assert!(!is_listed(&hosts, host), "{host}");
        }
        assert!(is_listed(&[], "anything.example"));
        for text in ["", "*", "*.", "a b", "https://a.example", "a.example:443", "*.1.1.1.1", "a.*.example"] {
            assert_eq!(parse_host(text), None, "{text}");
        }
    }
}
