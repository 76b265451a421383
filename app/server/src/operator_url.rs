//! Steps 1 and 7 of 7: URLs that an operator sets: of the identity provider, and of the heartbeat's receiver.
//!
//! The operator trusts them, so that their addresses may be private (`Allowed::for_operators`). They must be https, unless
//! they lead to this machine or the operator permits http.

use anyhow::{Context as _, ensure};
use egress::allowed::Tenant;
use url::Url;

/// No team has a part in these requests.
pub(crate) const SERVICE: Tenant<'_> = Tenant { team_id: None, hosts: &[] };

/// Parses a URL that may be http only if `permits_http` says so. An error never repeats it, because it may be a secret.
///
/// # Errors
/// Returns what is wrong with the URL.
pub(crate) fn parse_operator_url(text: &str, permits_http: impl Fn(&Url) -> bool) -> anyhow::Result<Url> {
    let url = Url::parse(text).context("it is not a URL")?;
    ensure!(url.username().is_empty() && url.password().is_none(), "it must have no user and no password");
    let is_permitted = url.scheme() == "https" || (url.scheme() == "http" && permits_http(&url));
    ensure!(is_permitted, "it must be https");
    Ok(url)
}

/// Whether the URL leads to this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
